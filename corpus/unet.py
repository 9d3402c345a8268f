"""A U-Net (Ronneberger et al. 2015) with batch norm; upsampling by transposed convolution or by interpolation."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    """(convolution, batch norm, ReLU) twice."""

    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        if not mid_channels:
            mid_channels = out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.pool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(in_channels, out_channels))

    def forward(self, x):
        return self.pool_conv(x)


class Up(nn.Module):
    """Upsamples `x1` to the size of `x2`, which came over the skip connection, and joins them."""

    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy = x2.size(2) - x1.size(2)
        dx = x2.size(3) - x1.size(3)
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels=3, n_classes=2, width=8, bilinear=False):
        super().__init__()
        factor = 2 if bilinear else 1
        self.inc = DoubleConv(n_channels, width)
        self.down1 = Down(width, 2 * width)
        self.down2 = Down(2 * width, 4 * width // factor)
        self.up1 = Up(4 * width, 2 * width // factor, bilinear)
        self.up2 = Up(2 * width, width, bilinear)
        self.outc = nn.Conv2d(width, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.up1(x3, x2)
        x = self.up2(x, x1)
        return self.outc(x)


def dice_loss(logits, target, eps=1e-6):
    """One minus the mean Dice coefficient of the classes; `target` holds class numbers."""
    probs = logits.softmax(dim=1)
    one_hot = F.one_hot(target, logits.shape[1]).permute(0, 3, 1, 2).float()
    inter = (probs * one_hot).sum(dim=(2, 3))
    total = probs.sum(dim=(2, 3)) + one_hot.sum(dim=(2, 3))
    return 1 - ((2 * inter + eps) / (total + eps)).mean()


# jaxmigrate: example UNet(width=4)(f32[2, 3, 18, 16])
# jaxmigrate: example UNet(width=4, bilinear=True)(f32[2, 3, 18, 16])
# jaxmigrate: example dice_loss(f32[2, 3, 5, 4], i64[2, 5, 4] < 3)

if __name__ == "__main__":
    torch.manual_seed(0)
    logits = UNet()(torch.randn(2, 3, 18, 16))
    print(dice_loss(logits, torch.randint(0, 2, (2, 18, 16))).item())
