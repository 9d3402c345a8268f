"""Trains a small convolutional GAN on synthetic images, in the style of PyTorch's DCGAN tutorial."""

import torch
import torch.nn as nn
import torch.optim as optim

# jaxmigrate: example Discriminator(4)(f32[3, 1, 16, 16])


class Generator(nn.Module):
    def __init__(self, nz, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, width * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, width * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width * 2, 1, 4, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.main(x)


def train(netG, netD, batches, noises, lr=0.0002, beta1=0.5):
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = optim.Adam(netD.parameters(), lr=lr, betas=(beta1, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=lr, betas=(beta1, 0.999))
    real_label, fake_label = 1.0, 0.0
    D_losses, G_losses = [], []
    for real, noise in zip(batches, noises):
        # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        label = torch.full((real.size(0),), real_label)
        output = netD(real).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()
        # (2) Update G network: maximize log(D(G(z)))
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        optimizerG.step()
        print("Loss_D: %.4f\tLoss_G: %.4f\tD(x): %.4f" % (errD.item(), errG.item(), D_x))
        D_losses.append(errD.item())
        G_losses.append(errG.item())
    return D_losses, G_losses


if __name__ == "__main__":
    torch.manual_seed(0)
    netG, netD = Generator(8, 4), Discriminator(4)
    train(netG, netD, [torch.rand(4, 1, 16, 16) for _ in range(2)], [torch.randn(4, 8, 1, 1) for _ in range(2)])
