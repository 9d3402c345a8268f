def build():
    return Policy()


def drive(policy):
    return train(policy, Walk(), 15)
