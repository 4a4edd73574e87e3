"""A small task of sequence models."""

X = ["abc", "cab", "bca", "aab", "ccb", "bbb", "cba", "acb"] * 5
Y = [x.translate(str.maketrans("abc", "xyz")) for x in X]
SMALL = {"loss": "edit", "order": 2, "window": 1, "span": 2, "batch_size": 16, "epochs": 4}


class Killed(Exception):
    pass
