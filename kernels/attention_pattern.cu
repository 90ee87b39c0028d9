// The attention pattern of given scores. (Its backward is softmax's, with a scale.)
//
//   layout   scores, y: (…, T, S), rows of S one after the other; mask: null, or of any strides with a bool for each
//            score (True = attend), whose strides along the dims …, T, in bytes, are operand 1 of `rows`
//   launch   a warp or a block for each row: see rows.cuh
//   equals   softmax(np.where(seen, scores * scale, -np.inf)), and zeros for a row that sees nothing; seen is mask, and
//            with causal mask & np.tri(T, S, dtype=bool)
#include "layout.cuh"
#include "rows.cuh"

// args  y, scores (rows.size, S); bits mask? (*rows.shape[:rows.ndim], S) at (*rows.strides[16:][:rows.ndim], step)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS)
attention_pattern(T* __restrict__ y, const T* __restrict__ scores, const unsigned char* __restrict__ mask, Layout rows,
                  long long step, long long queries, long long S, R scale, bool causal) {
  const long long row = own_row(), i = row % queries;
  if (row >= rows.size) return;
  y += row * S;
  scores += row * S;
  const long long n = causal && i + 1 < S ? i + 1 : S;  // a query sees no key after its own
  R total = 0;
  auto softmax_of = [&](auto x) { with_row(n, x, [&](auto& row) { total = softmax_row(y, row).b; }); };
  if (!mask) {
    softmax_of([&](long long j) { return R(scores[j]) * scale; });
  } else {
    long long left = row;
    for (long long d = rows.ndim - 1; d >= 0; d--) {
      mask += left % rows.shape[d] * rows.strides[1][d];
      left /= rows.shape[d];
    }
    if (step == 1) {  // the usual step as a constant, so that the loop vectorises
      softmax_of([&](long long j) { return mask[j] ? R(scores[j]) * scale : -INF; });
    } else {
      softmax_of([&](long long j) { return mask[j * step] ? R(scores[j]) * scale : -INF; });
    }
  }
  const T hidden = T(0 * total);  // 0, or NaN in a row that has a NaN
  each(S - n, [&](long long j) { y[n + j] = hidden; });
}
