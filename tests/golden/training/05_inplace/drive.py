def build():
    return ()


def drive(boxes, scores, x, seg, a, mask, v, idx, logits, table, start):
    kept = nms(boxes, scores, 0.3)
    mean = segment_mean(x, seg, 7)
    b, c = pipeline(a, mask)
    bumped = bump(v.clone(), idx)
    filtered = filter_logits(logits, 6, 0.9)
    return kept, mean, a, b, c, bumped, filtered, logits, generate(table, start, 15)
