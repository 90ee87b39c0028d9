// LayerNorm and RMSNorm over rows, and their backward.
//
//   layout   x, y, dy, dx: rows of n elements, one after the other; mean, rstd: one for each row; weight, bias: (n,).
//            A null mean makes it RMSNorm, as if the mean were 0; a null weight is ones, a null bias zeros.
//   launch   norm_forward: a warp or a block for each row: see rows.cuh. norm_backward: each block takes a run of rows
//            and accumulates its part of dweight and dbias in Totals, of 8 bytes each: in registers, where its threads
//            have at most 4 elements of a row; or in memory. add_parts then adds up the parts in a fixed order, with a
//            block for each 32 columns of a result.
//   equals   mean = x.mean(-1); rstd = 1 / np.sqrt(((x - mean) ** 2).mean(-1) + eps); xhat = (x - mean) * rstd
//            y = xhat * weight + bias; dbias = dy.sum(0); dweight = (dy * xhat).sum(0)
//            g = dy * weight; dx = (g - g.mean(-1) - xhat * (g * xhat).mean(-1)) * rstd (RMSNorm: no g.mean(-1))
#include "rows.cuh"

extern "C" __global__ void norm_forward(T* __restrict__ y, T* __restrict__ mean, T* __restrict__ rstd,
                                        const T* __restrict__ x, const T* __restrict__ weight,
                                        const T* __restrict__ bias, long long rows, long long n, double eps) {
  const long long at = own_row();
  if (at >= rows) return;
  y += at * n;
  with_row(n, x + at * n, [&](auto& row) {
    const R mu = mean ? row.sum([](long long, R v) { return v; }) / n : R(0);
    const R variance = row.sum([&](long long, R v) { R d = v - mu; return d * d; }) / n;
    const R r = 1 / sqrt(variance + R(eps));
    if (threadIdx.x == 0) {
      if (mean) mean[at] = T(mu);
      rstd[at] = T(r);
    }
    if (weight && bias) {
      row.map(y, [&](long long, R v, R w, R b) { return (v - mu) * r * w + b; }, weight, bias);
    } else if (weight) {
      row.map(y, [&](long long, R v, R w) { return (v - mu) * r * w; }, weight);
    } else {
      row.map(y, [&](long long i, R v) { return (v - mu) * r + (bias ? R(bias[i]) : R(0)); });
    }
  }, y, weight, bias);
}

// dx of one row.
template <bool WEIGHT>
__device__ __forceinline__ void row_backward(T* __restrict__ dx, const T* __restrict__ dy, const T* __restrict__ x,
                                             const T* __restrict__ weight, R mu, R r, bool centred, long long n) {
  auto g = [&](long long i) { return WEIGHT ? R(dy[i]) * R(weight[i]) : R(dy[i]); };
  auto xhat = [&](long long i) { return (R(x[i]) - mu) * r; };
  if (centred && n == 1) {  // exactly 0: a number is its own mean. Below, a fused multiply-add would leave a rounding
    each(n, [&](long long i) { dx[i] = T((g(i) + xhat(i)) * R(0)); });
    return;
  }
  Pair s = sum_pairs(n, [&](long long i) { return Pair{g(i), g(i) * xhat(i)}; });
  const R along_one = centred ? s.a / n : R(0), along_xhat = s.b / n;
  each(n, [&](long long i) { dx[i] = T((g(i) - along_one - xhat(i) * along_xhat) * r); });
}

// Adds what ROWS rows contribute to dweight and dbias, unless these are null.
template <int ROWS>
__device__ __forceinline__ void add_to_parameters(Total<R>* __restrict__ dweight, Total<R>* __restrict__ dbias,
                                                  const T* __restrict__ dy, const T* __restrict__ x,
                                                  const T* __restrict__ mean, const T* __restrict__ rstd, long long n) {
  R mu[ROWS], r[ROWS];
  UNROLL for (int k = 0; k < ROWS; k++) {
    mu[k] = mean ? R(mean[k]) : R(0);
    r[k] = rstd[k];
  }
  if (dweight) each(n, [&](long long i) {
    dweight[i].add(chain<ROWS>([&](int k) { return R(dy[k * n + i]) * ((R(x[k * n + i]) - mu[k]) * r[k]); }));
  });
  if (dbias) each(n, [&](long long i) { dbias[i].add(tree<ROWS>([&](int k) { return R(dy[k * n + i]); })); });
}

// Likewise dx of rows [first, end), which the block's threads can hold: on a GPU they are read once, and what they add to
// dweight and dbias stays in registers to the end.
template <int W>
__device__ __forceinline__ void held_rows(T* __restrict__ dx, Total<R>* __restrict__ dweight, Total<R>* __restrict__ dbias,
                                          const T* __restrict__ dy, const T* __restrict__ x,
                                          const T* __restrict__ weight, const T* __restrict__ mean,
                                          const T* __restrict__ rstd, long long first, long long end, long long n) {
  const bool at_once = W > 1 && aligned(dx) && aligned(Rows{dy, x}) && aligned(weight);
  const Row<W, const T*> factor(n, weight ? weight : x, at_once);
  Total<R> to_weight[4] = {}, to_bias[4] = {};
  for (long long at = first; at < end; at++) {
    const Row<W, Rows> row(n, Rows{dy + at * n, x + at * n}, at_once);
    const R mu = mean ? R(mean[at]) : R(0), r = R(rstd[at]);
    Totals s = {};
    auto g = [&](int j) { return weight ? row.v[j].a * factor.v[j] : row.v[j].a; };
    auto xhat = [&](int j) { return (row.v[j].b - mu) * r; };
    row.places(int(n), [&](int, int k) {
      UNROLL for (int j = k; j < k + W; j++) {
        s.a.add(g(j));
        s.b.add(g(j) * xhat(j));
        if (dweight) to_weight[j].add(row.v[j].a * xhat(j));
        if (dbias) to_bias[j].add(row.v[j].a);
      }
    });
    if (!dx) continue;
    s = block_combine(s, [](Totals v, Totals w) { return Totals{sum_of(v.a, w.a), sum_of(v.b, w.b)}; });
    const R along_one = mean ? R(s.a) / n : R(0), along_xhat = R(s.b) / n;
    const R rate = mean && n == 1 ? R(0) : r;  // exactly 0: a number is its own mean, but for a rounding
    row.places(int(n), [&](int i, int k) {
      Few<W> made;
      UNROLL for (int j = 0; j < W; j++) made.of[j] = T((g(k + j) - along_one - xhat(k + j) * along_xhat) * rate);
      put(dx + at * n + i, made, at_once);
    });
  }
  factor.places(int(n), [&](int i, int k) {
    UNROLL for (int j = 0; j < W; j++) {
      if (dweight) dweight[i + j] = to_weight[k + j];
      if (dbias) dbias[i + j] = to_bias[k + j];
    }
  });
}

// The rows whose terms are added up before the sum is added to a Total: natively a few, which the cache holds.
constexpr int GROUP = ONE_THREAD ? RUN : 1;

// parts: (2, blocks, n), what each block contributes to dweight and dbias; in_shared: accumulated in shared memory.
extern "C" __global__ void norm_backward(T* __restrict__ dx, Total<R>* __restrict__ parts, const T* __restrict__ dy,
                                         const T* __restrict__ x, const T* __restrict__ weight,
                                         const T* __restrict__ mean, const T* __restrict__ rstd, long long rows,
                                         long long n, bool want_weight, bool want_bias, bool in_shared) {
  DYNAMIC_SHARED(Total<R>, grown);
  Total<R>* const to_weight = want_weight ? parts + blockIdx.x * n : nullptr;
  Total<R>* const to_bias = want_bias ? parts + (gridDim.x + (long long)blockIdx.x) * n : nullptr;
  const long long share = (rows + gridDim.x - 1) / gridDim.x, first = share * blockIdx.x;
  const long long end = first + share < rows ? first + share : rows;
  if (!ONE_THREAD && n <= 4 * blockDim.x) {
    if (n % 4 == 0) held_rows<4>(dx, to_weight, to_bias, dy, x, weight, mean, rstd, first, end, n);
    else held_rows<1>(dx, to_weight, to_bias, dy, x, weight, mean, rstd, first, end, n);
    return;
  }
  Total<R>* const dweight = in_shared && want_weight ? grown : to_weight;
  Total<R>* const dbias = in_shared && want_bias ? grown + n : to_bias;
  if (dweight) each(n, [&](long long i) { dweight[i] = {}; });  // each thread keeps its own columns, so no barrier
  if (dbias) each(n, [&](long long i) { dbias[i] = {}; });
  for (long long group = first; group < end; group += GROUP) {
    const long long last = group + GROUP < end ? group + GROUP : end;
    for (long long row = group; dx && row < last; row++) {
      const R mu = mean ? R(mean[row]) : R(0), r = R(rstd[row]);
      const long long at = row * n;
      if (weight) row_backward<true>(dx + at, dy + at, x + at, weight, mu, r, mean, n);
      else row_backward<false>(dx + at, dy + at, x + at, weight, mu, r, mean, n);
    }
    auto add = [&](auto rows, long long row) {
      add_to_parameters<decltype(rows)::value>(dweight, dbias, dy + row * n, x + row * n, mean ? mean + row : nullptr,
                                               rstd + row, n);
    };
    if (last - group == GROUP) add(Count<GROUP>{}, group);
    else for (long long row = group; row < last; row++) add(Count<1>{}, row);
  }
  if (!in_shared) return;
  if (dweight) each(n, [&](long long i) { to_weight[i] = dweight[i]; });
  if (dbias) each(n, [&](long long i) { to_bias[i] = dbias[i]; });
}

// first[j] = Σ_b parts[0, b, j] and second[j] = Σ_b parts[1, b, j], for those that are not null; the grid is
// (n / 32, 2). On a GPU a warp runs along the columns, and the warps share out the parts.
extern "C" __global__ void add_parts(T* __restrict__ first, T* __restrict__ second,
                                     const Total<R>* __restrict__ parts, long long blocks, long long n) {
  __shared__ Total<R> sums[32][32];
  T* const y = blockIdx.y ? second : first;
  if (!y) return;
  parts += blockIdx.y * blocks * n;
  const unsigned lanes = blockDim.x < 32 ? 1 : 32, warps = blockDim.x / lanes;
  const unsigned lane = threadIdx.x % lanes, warp = threadIdx.x / lanes;
  for (long long j = lane; j < 32; j += lanes) {
    const long long column = 32LL * blockIdx.x + j;
    Total<R> s = {};
    for (long long b = warp; column < n && b < blocks; b += warps) s.add(parts[b * n + column]);
    sums[warp][j] = s;
  }
  __syncthreads();
  for (long long j = threadIdx.x; j < 32; j += blockDim.x) {
    const long long column = 32LL * blockIdx.x + j;
    Total<R> s = {};
    for (unsigned w = 0; w < warps; w++) s.add(sums[w][j]);
    if (column < n) y[column] = T(R(s));
  }
}
