// Optimizers, and the norm and clipping of many arrays: one launch for all parameters.
//
//   layout   slots: a row for each array, with its pointers and size. Arrays are compact and changed in place. Each is
//            cut into chunks of CHUNK elements; slots[k].chunk is the number of the first chunk of array k.
//            slots[k].row is its row of `options`: adam: lr / (1 - beta1^t), decay, 1 / √(1 - beta2^t); sgd: lr, decay;
//            muon: lr, decay, momentum
//   launch   a block for each chunk. sum_squares writes a partial sum for each, which root_of_sum adds up in one block
//   equals   adam: m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g**2, with the step t of each array
//            p -= lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
//            sgd: b = momentum * b + g; p -= lr * (g + momentum * b if nesterov else b)
//            muon: m = momentum * m + (1 - momentum) * g; p = p * (1 - lr * decay) - lr * scale * v, where v was
//            momentum * m + (1 - momentum) * g if nesterov else m, and is orthogonal by now: launch/optim.py
//            If *stop is not 0 (see captured.cu), an optimizer changes nothing.
//            clip: p *= min(1, most / (norm + 1e-6))
//            weight decay: p *= 1 - lr * decay before this if decoupled, else g += decay * p
#include "common.cuh"

#define CHUNK 4096

// minigrad/backend/launch/optim.py reads the fields from here.
struct Slot {
  T *p, *m, *v;
  const T* g;
  long long size, chunk, row;
};

// The slot of this block's chunk, which is elements [from, to) of the slot's arrays.
__device__ __forceinline__ const Slot& find(const Slot* __restrict__ slots, int count, long long& from, long long& to) {
  const long long chunk = blockIdx.x;
  int low = 0;
  if (ONE_THREAD) {
    for (int high = count - 1; low < high;) {  // the last slot that begins at or before this chunk; none is empty
      const int middle = (low + high + 1) / 2;
      if (slots[middle].chunk <= chunk) low = middle;
      else high = middle - 1;
    }
  } else {  // all at once: memory answers late
    __shared__ int found;
    for (int k = threadIdx.x; k < count; k += blockDim.x)
      if (slots[k].chunk <= chunk && (k + 1 == count || slots[k + 1].chunk > chunk)) found = k;
    __syncthreads();
    low = found;
  }
  from = (chunk - slots[low].chunk) * CHUNK;
  to = from + CHUNK < slots[low].size ? from + CHUNK : slots[low].size;
  return slots[low];
}

struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Four { T of[4]; };
__device__ __forceinline__ bool in_fours(const T* x) { return (unsigned long long)x % alignof(Four) == 0; }

// args  slots[count] p, m, v, g (size); options (…, 3); stop? (1); where most(slots, 'row') < options.size // 3
extern "C" __global__ void adam(const Slot* __restrict__ slots, int count,
                                const double* __restrict__ options, double beta1, double beta2, double eps,
                                bool decoupled, const long long* stop) {
  if (stop && *stop) return;
  long long from, to;
  const Slot& slot = find(slots, count, from, to);
  T* const __restrict__ p = slot.p + from;
  T* const __restrict__ m = slot.m + from;
  T* const __restrict__ v = slot.v + from;
  const T* const __restrict__ g = slot.g + from;
  const R keep_m = R(beta1), add_m = R(1 - beta1), keep_v = R(beta2), add_v = R(1 - beta2), small = R(eps);
  const double* const option = options + 3 * slot.row;
  const R rate = R(option[0]), root = R(option[2]);
  const R shrink = decoupled ? R(option[1]) : R(1), decay = decoupled ? R(0) : R(option[1]);
  auto update = [&](T& pi, T& mi, T& vi, R g) {
    const R p = R(pi) * shrink, of_g = decay == 0 ? g : g + p * decay;
    const R m = R(mi) * keep_m + of_g * add_m, v = R(vi) * keep_v + of_g * of_g * add_v;
    mi = T(m);
    vi = T(v);
    pi = T(p - m * rate / (sqrt(v) * root + small));
  };
  long long fours = 0;
  if (!ONE_THREAD && in_fours(p) && in_fours(m) && in_fours(v) && in_fours(g)) {
    fours = (to - from) / 4;
    each(fours, [&](long long i) {
      Four ps = ((Four*)p)[i], ms = ((Four*)m)[i], vs = ((Four*)v)[i];
      const Four gs = ((const Four*)g)[i];
      UNROLL for (int k = 0; k < 4; k++) update(ps.of[k], ms.of[k], vs.of[k], R(gs.of[k]));
      ((Four*)m)[i] = ms;
      ((Four*)v)[i] = vs;
      ((Four*)p)[i] = ps;
    });
  }
  each(to - from - 4 * fours, [&](long long i) { i += 4 * fours; update(p[i], m[i], v[i], R(g[i])); });
}

// args  slots[count] p, m?, g (size); options (…, 2); stop? (1); where most(slots, 'row') < options.size // 2
extern "C" __global__ void sgd(const Slot* __restrict__ slots, int count,
                               const double* __restrict__ options, double momentum, bool nesterov,
                               const long long* stop) {
  if (stop && *stop) return;
  long long from, to;
  const Slot& slot = find(slots, count, from, to);
  T* const __restrict__ p = slot.p + from;
  const T* const __restrict__ g = slot.g + from;
  const double* const option = options + 2 * slot.row;
  const R rate = R(option[0]), decay = R(option[1]), kept = R(momentum);
  auto decayed = [&](long long i) { return decay == 0 ? R(g[i]) : R(g[i]) + R(p[i]) * decay; };  // 0 * ∞ is NaN
  if (momentum == 0) {
    each(to - from, [&](long long i) { p[i] = T(R(p[i]) - decayed(i) * rate); });
    return;
  }
  T* const __restrict__ m = slot.m + from;
  each(to - from, [&](long long i) {
    const R gi = decayed(i), mi = R(m[i]) * kept + gi;
    m[i] = T(mi);
    p[i] = T(R(p[i]) - (nesterov ? gi + mi * kept : mi) * rate);
  });
}

// v = the direction that is then made orthogonal: the momentum after this step, or with nesterov one step of momentum further.
// args  slots[count] v, g (size); slots[count] const m (size); options (…, 3); where most(slots, 'row') < options.size // 3
extern "C" __global__ void muon_direction(const Slot* __restrict__ slots, int count, const double* __restrict__ options,
                                          bool nesterov) {
  long long from, to;
  const Slot& slot = find(slots, count, from, to);
  T* const __restrict__ v = slot.v + from;
  const T* const __restrict__ m = slot.m + from;
  const T* const __restrict__ g = slot.g + from;
  const double momentum = options[3 * slot.row + 2];
  const R keep = R(momentum), add = R(1 - momentum);
  each(to - from, [&](long long i) {
    const R gi = R(g[i]) * add, mi = R(m[i]) * keep + gi;
    v[i] = T(nesterov ? mi * keep + gi : mi);
  });
}

// parts = the sums of squares of CHUNK elements each, for matrices x of n elements.
// args  parts (grid); x (grid // up(n, CHUNK), n)
extern "C" __global__ void muon_squares(double* __restrict__ parts, const T* __restrict__ x, long long n) {
  const long long chunks = (n + CHUNK - 1) / CHUNK, from = blockIdx.x % chunks * CHUNK;
  x += blockIdx.x / chunks * n + from;
  const double s = sum<double>(n - from < CHUNK ? n - from : CHUNK,
                               [&](long long i) { const double xi = R(x[i]); return xi * xi; });
  if (threadIdx.x == 0) parts[blockIdx.x] = s;
}

// x = x / max(‖x‖, eps), where ‖x‖² is the sum of a matrix's parts. The blocks are the same.
// args  x (grid // up(n, CHUNK), n); parts (grid)
extern "C" __global__ void muon_norm(T* __restrict__ x, const double* __restrict__ parts, long long n, double eps) {
  const long long chunks = (n + CHUNK - 1) / CHUNK, matrix = blockIdx.x / chunks, from = blockIdx.x % chunks * CHUNK;
  const double norm = sqrt(sum<double>(chunks, [&](long long i) { return parts[matrix * chunks + i]; }));
  const R factor = R(1 / (norm > eps || norm != norm ? norm : eps));
  x += matrix * n + from;
  each(n - from < CHUNK ? n - from : CHUNK, [&](long long i) { x[i] = T(R(x[i]) * factor); });
}

// A block for each row of matrices A (n, n): q, which holds A², becomes a I + b A + c A².
// args  q, A (grid, n)
extern "C" __global__ void muon_polynomial(T* __restrict__ q, const T* __restrict__ A, long long n, double a, double b,
                                           double c) {
  q += blockIdx.x * n;
  A += blockIdx.x * n;
  const long long diagonal = blockIdx.x % n;
  const R of_one = R(a), of_A = R(b), of_square = R(c);
  each(n, [&](long long i) { q[i] = T(R(q[i]) * of_square + R(A[i]) * of_A + (i == diagonal ? of_one : R(0))); });
}

// The update of muon: m, and p by the orthogonal direction v.
// args  slots[count] p, m, g (size); slots[count] const v (size); options (…, 3); stop? (1); where most(slots, 'row') < options.size // 3
extern "C" __global__ void muon(const Slot* __restrict__ slots, int count, const double* __restrict__ options,
                                double scale, const long long* stop) {
  if (stop && *stop) return;
  long long from, to;
  const Slot& slot = find(slots, count, from, to);
  T* const __restrict__ p = slot.p + from;
  T* const __restrict__ m = slot.m + from;
  const T* const __restrict__ v = slot.v + from;
  const T* const __restrict__ g = slot.g + from;
  const double* const option = options + 3 * slot.row;
  const R shrink = R(1 - option[0] * option[1]), rate = R(option[0] * scale), keep = R(option[2]), add = R(1 - option[2]);
  each(to - from, [&](long long i) {
    m[i] = T(R(m[i]) * keep + R(g[i]) * add);
    p[i] = T(R(p[i]) * shrink - R(v[i]) * rate);
  });
}

// args  slots[count] p (size); norm (1)
extern "C" __global__ void clip(const Slot* __restrict__ slots, int count, const double* __restrict__ norm,
                                double most) {
  const double limit = most / (*norm + 1e-6);
  if (limit >= 1) return;
  const R factor = R(limit);  // NaN if the norm is
  long long from, to;
  T* const __restrict__ p = find(slots, count, from, to).p + from;
  each(to - from, [&](long long i) { p[i] = T(R(p[i]) * factor); });
}

// args  slots[count] const p (size); parts (grid)
extern "C" __global__ void sum_squares(const Slot* __restrict__ slots, int count, double* __restrict__ parts) {
  long long from, to;
  const T* const __restrict__ p = find(slots, count, from, to).p + from;
  const double s = sum<double>(to - from, [&](long long i) { double x = R(p[i]); return x * x; });
  if (threadIdx.x == 0) parts[blockIdx.x] = s;
}

// args  norm (1); parts (n)
extern "C" __global__ void root_of_sum(double* __restrict__ norm, const double* __restrict__ parts,
                                       long long n) {
  const double s = sum<double>(n, [&](long long i) { return parts[i]; });
  if (threadIdx.x == 0) *norm = sqrt(s);
}
