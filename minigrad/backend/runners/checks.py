"""Checks of indices on a GPU, without waiting: a kernel notes wrong indices in an array, and the host raises IndexError
when it next waits for the GPU."""

import numpy as np

WORD = np.dtype(np.uint64)  # kernels/captured.cu is compiled for this dtype
NONE_WRONG = 0, -1  # the state of a check at first: the lowest index below 0, and the highest that is n or more


class DeferredChecks:
    """Checks of indices, and the wrong indices that they have found.

    checks: (raise_for, line, array of the GPU) each. raise_for(wrong indices) raises IndexError. line is the user's, in
    words. The kernel writes the lowest and the highest wrong index to the array."""

    def __init__(self, backend, checks):
        self.backend, self.checks = backend, checks
        self.found = backend.pinned((len(checks), 2), np.int64)  # the same arrays, copied to the host
        self.found[...] = NONE_WRONG

    def raise_index_errors(self, where=""):
        """Raise IndexError if an index was wrong."""
        if (self.found == NONE_WRONG).all():
            return
        found, self.found[...] = self.found.copy(), NONE_WRONG
        for _, _, on_gpu in self.checks:
            on_gpu.set(np.array(NONE_WRONG))
        self.backend.stop_flag.fill(0)
        for (raise_for, line, _), lowest_and_highest in zip(self.checks, found):
            try:
                raise_for(lowest_and_highest[lowest_and_highest != NONE_WRONG])
            except IndexError as error:
                since = "no optimizer has changed anything since"
                raise IndexError(f"{error}{where} ({line}); {since}") from None


class LineCheck(DeferredChecks):
    """The check of one line of the user's outside of captured steps, each time that the line runs."""

    def __init__(self, backend, raise_for, line):
        super().__init__(backend, [(raise_for, line, backend.from_numpy(np.array(NONE_WRONG)))])
        self._event = backend.event()

    def run(self, index, n, wraps, ignored):
        """Return checked_copy() of the indices. The wrong ones are copied to the host, and nothing waits for that."""
        stream, ((_, _, on_gpu),) = self.backend.current_stream(), self.checks
        y = checked_copy(self.backend, index, n, wraps, ignored, on_gpu)
        self.backend.download(self.found[0], on_gpu, stream)
        self._event.record(stream)
        self.backend.unread_checks[self] = None
        return y

    @property
    def is_done(self):
        """True if the GPU has finished the last check and its copy."""
        return self._event.done

    def __del__(self):
        if not self.is_done:  # page-locked memory that is given back may be used for something else at once
            self._event.synchronize()


def checked_copy(backend, index, n, wraps, ignored, found):
    """Return a copy of an array of indices, with 0 in place of each that is neither in [0, n) nor `ignored`. The lowest
    and the highest of these wrong indices are written to the array `found`. wraps: indices below 0 count from n."""
    index = backend.operand(index, np.dtype(np.int64))
    y = backend.empty(index.shape, index.dtype)
    args = y, index, index.size, n, wraps, ignored is not None, ignored or 0, found, backend.stop_flag
    backend.launch_each(index.size, "captured", "check", WORD, *args)
    return y
