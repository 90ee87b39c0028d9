// The parts of matrix products on the CPU, for gemm.cpp and attention.cpp: vectors, packing, and a loop whose sums stay
// in registers.

#if defined(__AVX512F__)
constexpr int BYTES = 64, MR = 12;  // of a vector; 12 × 2 sums, 2 vectors of b and one element of a in 32 registers
#elif defined(__AVX__)
constexpr int BYTES = 32, MR = 6;  // 12 sums, 2 and 1, in 16 registers
#else
constexpr int BYTES = 16, MR = 6;
#endif
constexpr int W = BYTES / sizeof(T), WIDTH = 2 * W;  // elements of a vector and of a row of a panel

typedef T Vector __attribute__((vector_size(BYTES)));
#define UNROLLED PRAGMA(GCC unroll 16)

static __forceinline__ Vector load(const T* x) {
  Vector v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
static __forceinline__ void store(T* x, Vector v) { std::memcpy(x, &v, sizeof v); }
// `count` of them, and zeros.
__attribute__((noinline)) static Vector load(const T* x, long long count) {
  T padded[W] = {};
  for (int l = 0; l < W; l++) padded[l] = l < count ? x[l] : T(0);
  return load(padded);
}
static long long least(long long x, long long y) { return x < y ? x : y; }

// ------------------------------------------------------------------------------------------------------------ packing

// One step of a transposition: of two vectors, the lanes whose number has the bit D change places.
template <int D, std::size_t... L>
static __forceinline__ void exchange(Vector& x, Vector& y, std::index_sequence<L...>) {
  const Vector before = x;
#ifdef __clang__
  x = __builtin_shufflevector(before, y, (L & D ? W + (L ^ D) : L)...);
  y = __builtin_shufflevector(before, y, (L & D ? W + L : L ^ D)...);
#else
  typedef std::conditional_t<sizeof(T) == 4, int, long long> Lane;
  typedef Lane Lanes __attribute__((vector_size(BYTES)));
  x = __builtin_shuffle(before, y, Lanes{Lane(L & D ? W + (L ^ D) : L)...});
  y = __builtin_shuffle(before, y, Lanes{Lane(L & D ? W + L : L ^ D)...});
#endif
}

template <int D = W / 2>
static __forceinline__ void transpose(Vector (&x)[W]) {
  UNROLLED for (int i = 0; i < W; i++)
    if (!(i & D)) exchange<D>(x[i], x[i | D], std::make_index_sequence<W>());
  if constexpr (D > 1) transpose<D / 2>(x);
}

// Copies x (k, count), with its strides across and along k, to `packed` (k, width), with zeros for missing columns.
// `beyond`: how many further columns may be read. It writes chunks of W columns, and the last chunk of a row may reach
// into the next row. So it goes through the chunks from right to left, and through their rows from the first on, which
// overwrites that; at the end, up to W elements after `packed` have been written.
static void pack(T* __restrict__ packed, int width, const T* __restrict__ x, const long long* strides, long long k,
                 int count, long long beyond) {
  const long long across = strides[0], along = strides[1];
  for (int j = (width - 1) / W * W; j >= 0; j -= W) {
    T* to = packed + j;
    const T* from = x + j * across;
    const int left = count - j;
    long long i = 0;
    if (across == 1 && left + beyond >= W)
      for (; i < k; i++) store(to + i * width, load(from + i * along));
    else if (along == 1)
      for (; i + W <= k; i += W) {
        Vector square[W];
        UNROLLED for (int r = 0; r < W; r++) square[r] = r < left ? load(from + r * across + i) : Vector{};
        transpose(square);
        UNROLLED for (int r = 0; r < W; r++) store(to + (i + r) * width, square[r]);
      }
    for (; i < k; i++)
      for (int l = 0; l < W && j + l < width; l++) to[i * width + l] = l < left ? from[i * along + l * across] : T(0);
  }
}

// ----------------------------------------------------------------------------------------------------- multiplication

// Where the sums of a strip go: to y, or added to y, which has the sums of earlier parts of k. After the last part a
// bias is added.
struct Out {
  T* y;
  long long stride;
  const T* bias;  // or null
  bool add;
};

// Stores sums, for rows whose last vector is not a whole one.
__attribute__((noinline)) static void finish(const T* sums, int rows, int width, const Out& out, int count) {
  for (int r = 0; r < rows; r++) {
    T* y = out.y + r * out.stride;
    for (int l = 0; l < count; l++) {
      T z = sums[r * width + l];
      if (out.add) z += y[l];
      if (out.bias) z += out.bias[l];
      y[l] = z;
    }
  }
}

// Multiplies HIGH rows of a by the next `count` columns of b, which are WIDE vectors; the last may not be whole. If
// both are packed, the strides are constants, and the loop computes no addresses.
template <int HIGH, int WIDE, bool PACKED>
static void multiply(const T* __restrict__ a, const long long* a_strides, const T* __restrict__ b, long long b_stride,
                     long long k, const Out& out, int count) {
  const long long down = PACKED ? 1 : a_strides[0], along = PACKED ? HIGH : a_strides[1];
  if (PACKED) b_stride = WIDTH;
  UNROLLED for (int r = 0; r < HIGH; r++) {  // y is needed at the end only, but then at once
    __builtin_prefetch(out.y + r * out.stride, 1);
    __builtin_prefetch(out.y + r * out.stride + (WIDE * W - 1), 1);
  }
  Vector sums[HIGH][WIDE];
  UNROLLED for (int r = 0; r < HIGH; r++)
    UNROLLED for (int c = 0; c < WIDE; c++) sums[r][c] = Vector{};
  for (long long i = 0; i < k; i++, a += along, b += b_stride) {
    Vector row[WIDE];
    UNROLLED for (int c = 0; c < WIDE; c++) row[c] = load(b + c * W);
    UNROLLED for (int r = 0; r < HIGH; r++)
      UNROLLED for (int c = 0; c < WIDE; c++) sums[r][c] += a[r * down] * row[c];
  }
  if (count < WIDE * W) {
    T all[HIGH * WIDE * W];
    UNROLLED for (int r = 0; r < HIGH; r++)
      UNROLLED for (int c = 0; c < WIDE; c++) store(all + (r * WIDE + c) * W, sums[r][c]);
    return finish(all, HIGH, WIDE * W, out, count);
  }
  UNROLLED for (int r = 0; r < HIGH; r++)
    UNROLLED for (int c = 0; c < WIDE; c++) {
      T* y = out.y + r * out.stride + c * W;
      if (out.add) sums[r][c] += load(y);
      if (out.bias) sums[r][c] += load(out.bias + c * W);
      store(y, sums[r][c]);
    }
}

typedef void (*Multiply)(const T*, const long long*, const T*, long long, long long, const Out&, int);
template <int WIDE, bool PACKED, std::size_t... R>
static Multiply with_rows(int rows, std::index_sequence<R...>) {
  static constexpr Multiply all[] = {multiply<R + 1, WIDE, PACKED>...};
  return all[rows - 1];
}
// multiply() for up to MR rows and up to WIDTH columns.
template <bool PACKED>
static Multiply chosen(int rows, int columns) {
  auto all = std::make_index_sequence<MR>();
  return columns <= W ? with_rows<1, PACKED>(rows, all) : with_rows<2, PACKED>(rows, all);
}
