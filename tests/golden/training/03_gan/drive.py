def build():
    return Generator(4, 8), Discriminator(8)


def drive(generator, discriminator, *batches):
    return train(generator, discriminator, batches, 4, torch.device("cpu"))
