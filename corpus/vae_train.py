"""Trains a variational autoencoder on synthetic images and samples from it."""

import torch
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, d_in=64, hidden=32, latent=4):
        super().__init__()
        self.fc1 = nn.Linear(d_in, hidden)
        self.fc_mu = nn.Linear(hidden, latent)
        self.fc_logvar = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, d_in)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc_mu(h), self.fc_logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h))

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def elbo_loss(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (bce + kld) / x.size(0)


def make_data(n):
    """Images of 8 x 8 with one bright row and one bright column each."""
    rows = torch.randint(0, 8, (n,))
    cols = torch.randint(0, 8, (n,))
    images = torch.zeros(n, 8, 8)
    images[torch.arange(n), rows] = 1.0
    images[torch.arange(n), :, cols] = 1.0
    return images.flatten(1)


def train(model, data, epochs=5, batch_size=32, lr=1e-2):
    optimizer = optim.Adam(model.parameters(), lr=lr)
    losses = []
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for start in range(0, data.size(0), batch_size):
            batch = data[start : start + batch_size]
            optimizer.zero_grad()
            recon, mu, logvar = model(batch)
            loss = elbo_loss(recon, batch, mu, logvar)
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.size(0)
        losses.append(total / data.size(0))
        print(f"epoch {epoch + 1}: loss {losses[-1]:.3f}")
    return losses


@torch.no_grad()
def sample(model, n, latent=4):
    model.eval()
    return model.decode(torch.randn(n, latent))


def main():
    torch.manual_seed(0)
    data = make_data(256)
    model = VAE()
    losses = train(model, data)
    print("samples", tuple(sample(model, 4).shape))
    return losses


# jaxmigrate: example VAE().encode(f32[4, 64] in 0..1)
# jaxmigrate: example VAE().decode(f32[4, 4])
# jaxmigrate: example elbo_loss(f32[4, 64] in 0.1..0.9, f32[4, 64] in 0..1, f32[4, 4], f32[4, 4])

if __name__ == "__main__":
    main()
