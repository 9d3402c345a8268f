def build():
    return CharLM(11), CharLM(11)


def drive(model, fresh, inputs, targets):
    history = train(model, list(zip(inputs, targets)), 40, "charlm.pt", "cpu")
    return history, evaluate(fresh, "charlm.pt", inputs[0], targets[0])
