"""One file per task: its targets and its decode. A task is found by its file name.

A module has:

    REGION: Region                                     the cells that are trained on and decoded
    targets(record, alignment) -> Targets              annotations to gold cells
    decode(example, scores) -> Prediction               scored cells to annotations
"""
