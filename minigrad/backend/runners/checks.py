"""Checks of indices on a GPU, which the host does not wait for: what is wrong is noted there, and told when the host
next waits."""

import numpy as np

WORD = np.dtype(np.uint64)  # kernels/captured.cu is compiled for this dtype
NONE_WRONG = 0, -1  # the lowest index below 0, and the highest from n on


class Found:
    """What checks of indices have found, for the host; `raising` is (function, line, array of the GPU) of each."""

    def __init__(self, on, raising):
        self.on, self.raising = on, raising
        self.seen = on.pinned((len(raising), 2), np.int64)
        self.seen[...] = NONE_WRONG

    def raise_found(self, where=""):
        """Raise IndexError if an index was wrong."""
        if (self.seen == NONE_WRONG).all():
            return
        found, self.seen[...] = self.seen.copy(), NONE_WRONG
        for _, _, there in self.raising:
            there.set(np.array(NONE_WRONG))
        self.on.stopped.fill(0)
        for (function, line, _), lowest_and_highest in zip(self.raising, found):
            try:
                function(lowest_and_highest[lowest_and_highest != NONE_WRONG])
            except IndexError as error:
                since = "no optimizer has changed anything since"
                raise IndexError(f"{error}{where} ({line}); {since}") from None


class Lookup(Found):
    """The check of one line outside of captured steps: it looks at the indices each time that the line runs."""

    def __init__(self, on, function, line):
        super().__init__(on, [(function, line, on.from_numpy(np.array(NONE_WRONG)))])
        self._event = on.event()

    def checked(self, index, n, wraps, ignored):
        """checked_indices(); what it finds is copied to the host, and nothing waits for the copy."""
        stream, ((_, _, there),) = self.on.current_stream(), self.raising
        y = checked_indices(self.on, index, n, wraps, ignored, there)
        self.on.download(self.seen[0], there, stream)
        self._event.record(stream)
        self.on.unread[self] = None
        return y

    @property
    def done(self):
        return self._event.done

    def __del__(self):
        if not self.done:  # page-locked memory that is given back may be used for something else at once
            self._event.synchronize()


def checked_indices(on, index, n, wraps, ignored, found):
    """A copy of an array of indices, with 0 for each that is neither in [0, n) nor `ignored`; `found` records which.
    wraps: those below 0 count from n."""
    index = on.operand(index, np.dtype(np.int64))
    y = on.empty(index.shape, index.dtype)
    args = y, index, index.size, n, wraps, ignored is not None, ignored or 0, found, on.stopped
    on.launch_each(index.size, "captured", "check", WORD, *args)
    return y
