// LayerNorm and RMSNorm over rows, and their backward.
//
//   layout   a null mean makes it RMSNorm, as if the mean were 0; a null weight is ones, a null bias zeros
//   launch   norm_forward and norm_dx: a warp or a block for each row: see rows.cuh. norm_sums: each block takes a run
//            of rows and sums its part of dweight and dbias in Totals, of 8 bytes each; add_parts then adds up the parts
//            in a fixed order, with a block for each 32 columns of a result.
//   equals   mean = x.mean(-1); rstd = 1 / np.sqrt(((x - mean) ** 2).mean(-1) + eps); xhat = (x - mean) * rstd
//            y = xhat * weight + bias; dbias = dy.sum(0); dweight = (dy * xhat).sum(0)
//            g = dy * weight; dx = (g - g.mean(-1) - xhat * (g * xhat).mean(-1)) * rstd (RMSNorm: no g.mean(-1))
#include "rows.cuh"

// args  y, x (rows, n); mean?, rstd (rows); weight?, bias? (n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS)
norm_forward(T* __restrict__ y, T* __restrict__ mean, T* __restrict__ rstd, const T* __restrict__ x,
             const T* __restrict__ weight, const T* __restrict__ bias, long long rows, long long n, double eps) {
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
__device__ __forceinline__ void row_dx(T* __restrict__ dx, const T* __restrict__ dy, const T* __restrict__ x,
                                       const T* __restrict__ weight, R mu, R r, bool centred, long long n) {
  const R rate = centred && n == 1 ? R(0) : r;  // a single number is its own mean, so dx is exactly 0
  with_row(n, Rows{dy, x}, [&](auto& row) {
    auto write = [&](const auto* __restrict__... weights) {  // one, or none
      const Pair s = row.sums([=](Pair v, auto... w) {
        const R g = (v.a * ... * w);
        return Pair{g, g * ((v.b - mu) * r)};
      }, weights...);
      const R along_one = centred ? s.a / n : R(0), along_xhat = s.b / n;
      row.map(dx, [=](long long, Pair v, auto... w) {
        return ((v.a * ... * w) - along_one - (v.b - mu) * r * along_xhat) * rate;
      }, weights...);
    };
    if (weight) write(weight);
    else write();
  }, dx, weight);
}

// args  dx, dy, x (rows, n); mean?, rstd (rows); weight? (n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, 1)
norm_dx(T* __restrict__ dx, const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ weight,
        const T* __restrict__ mean, const T* __restrict__ rstd, long long rows, long long n) {
  const long long at = own_row();
  if (at >= rows) return;
  row_dx(dx + at * n, dy + at * n, x + at * n, weight, mean ? R(mean[at]) : R(0), rstd[at], mean, n);
}

// Adds the contribution of ROWS rows to dweight and dbias, unless these are null.
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

// On a GPU: dweight and dbias of rows [first, end), where a thread has W neighbouring columns at a time.
template <int W>
__device__ __forceinline__ void sum_columns(Total<R>* __restrict__ dweight, Total<R>* __restrict__ dbias,
                                            const T* __restrict__ dy, const T* __restrict__ x,
                                            const T* __restrict__ mean, const T* __restrict__ rstd, long long first,
                                            long long end, long long n) {
  const bool at_once = W > 1 && aligned(Rows{dy, x});
  for (long long column = W * threadIdx.x; column < n; column += W * blockDim.x) {
    Total<R> to_weight[W] = {}, to_bias[W] = {};
    auto take = [&](auto count, long long row) {
      constexpr int ROWS = decltype(count)::value;
      Pair v[ROWS][W];  // so that all loads are in flight at the same time
      UNROLL for (int k = 0; k < ROWS; k++) {
        const long long at = (row + k) * n + column;
        read<W>(v[k], Rows{dy + at, x + at}, 0, at_once);
      }
      UNROLL for (int k = 0; k < ROWS; k++) {
        const R mu = mean ? R(mean[row + k]) : R(0), r = R(rstd[row + k]);
        UNROLL for (int j = 0; j < W; j++) {
          to_weight[j].add(v[k][j].a * ((v[k][j].b - mu) * r));
          to_bias[j].add(v[k][j].a);
        }
      }
    };
    long long row = first;
    for (; row + 4 <= end; row += 4) take(Count<4>{}, row);
    for (; row < end; row++) take(Count<1>{}, row);
    UNROLL for (int j = 0; j < W; j++) {
      if (dweight) dweight[column + j] = to_weight[j];
      if (dbias) dbias[column + j] = to_bias[j];
    }
  }
}

// parts (2, blocks, n): the contribution of each block's rows to dweight and dbias. Natively, if dx is not null, it is
// written too, while the rows are in the cache.
// args  parts (2, grid, n); dx?, dy, x (rows, n); mean?, rstd (rows); weight? (n)
extern "C" __global__ void __launch_bounds__(HELD_THREADS, 1)
norm_sums(Total<R>* __restrict__ parts, T* __restrict__ dx, const T* __restrict__ dy, const T* __restrict__ x,
          const T* __restrict__ weight, const T* __restrict__ mean, const T* __restrict__ rstd, long long rows,
          long long n, bool want_weight, bool want_bias) {
  Total<R>* const dweight = want_weight ? parts + blockIdx.x * n : nullptr;
  Total<R>* const dbias = want_bias ? parts + (gridDim.x + (long long)blockIdx.x) * n : nullptr;
  const long long share = (rows + gridDim.x - 1) / gridDim.x, first = share * blockIdx.x;
  const long long end = first + share < rows ? first + share : rows;
  if constexpr (!ONE_THREAD) {
    if (n % 4 == 0) sum_columns<4>(dweight, dbias, dy, x, mean, rstd, first, end, n);
    else sum_columns<1>(dweight, dbias, dy, x, mean, rstd, first, end, n);
  } else {
    if (dweight) each(n, [&](long long i) { dweight[i] = {}; });
    if (dbias) each(n, [&](long long i) { dbias[i] = {}; });
    auto take = [&](auto count, long long row) {
      constexpr int ROWS = decltype(count)::value;
      for (long long i = row; dx && i < row + ROWS; i++)
        row_dx(dx + i * n, dy + i * n, x + i * n, weight, mean ? R(mean[i]) : R(0), rstd[i], mean, n);
      add_to_parameters<ROWS>(dweight, dbias, dy + row * n, x + row * n, mean ? mean + row : nullptr, rstd + row, n);
    };
    long long row = first;
    for (; row + RUN <= end; row += RUN) take(Count<RUN>{}, row);
    for (; row < end; row++) take(Count<1>{}, row);
  }
}

// first[j] = Σ_b parts[0, b, j] and second[j] = Σ_b parts[1, b, j], for those that are not null; the grid is
// (n / 32, 2). On a GPU a warp runs along the columns, and the warps share out the parts.
// args  first?, second? (n); parts (2, blocks, n)
extern "C" __global__ void __launch_bounds__(1024)
add_parts(T* __restrict__ first, T* __restrict__ second, const Total<R>* __restrict__ parts, long long blocks,
          long long n) {
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
