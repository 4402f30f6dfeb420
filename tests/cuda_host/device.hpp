/*
 * CUDA's C++ for the host: what the sources of kernels use of it, for the stand-in compiler (cuda_host_kernels.c), which puts this before them. Threads take
 * turns: each runs up to a barrier. Few headers, since kernels may use the names that others declare.
 */
#include <math.h>

typedef decltype(sizeof(0)) size_t;

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __shared__ static /* blocks run one after the other */
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __trap() __builtin_trap()

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

/* ---- what the launcher sets ---- */

struct standin_threads {
    uint3 *thread, *block;
    dim3 *threads, *blocks;
    void (*barrier)(int line);      /* waits for the block */
    void (*warp_barrier)(int line); /* waits for the warp */
};
extern "C" standin_threads standin_host;
standin_threads standin_host = {&threadIdx, &blockIdx, &blockDim, &gridDim, 0, 0};

struct standin_entry {
    size_t bytes;
    void (*call)(const void *argument);
};

/* ---- barriers ---- */

#define __syncthreads() standin_host.barrier(__LINE__)
#define __syncwarp(...) standin_host.warp_barrier(__LINE__)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

namespace standin {
static unsigned vote[1024];
static unsigned long long exchanged[1024][2];

template <typename F> static int votes(bool yes, F result) {
    vote[threadIdx.x] = yes;
    standin_host.barrier(-1);
    unsigned n = 0;
    for (unsigned t = 0; t < blockDim.x; t++)
        n += vote[t];
    standin_host.barrier(-2);
    return result(n);
}

/* The value of another thread of the warp. */
template <typename T> static T exchange(T value, unsigned from) {
    static_assert(sizeof(T) <= 16, "an exchange of at most 16 bytes");
    __builtin_memcpy(exchanged[threadIdx.x], &value, sizeof(T));
    standin_host.warp_barrier(-3);
    unsigned t = threadIdx.x / 32 * 32 + from % 32;
    if (t < blockDim.x)
        __builtin_memcpy(&value, exchanged[t], sizeof(T));
    standin_host.warp_barrier(-4);
    return value;
}
} // namespace standin

static inline int __syncthreads_count(int yes) {
    return standin::votes(yes, [](unsigned n) { return (int)n; });
}
static inline int __syncthreads_or(int yes) {
    return standin::votes(yes, [](unsigned n) { return (int)(n > 0); });
}
static inline int __syncthreads_and(int yes) {
    return standin::votes(yes, [](unsigned n) { return (int)(n == blockDim.x); });
}
template <typename T> static T __shfl_sync(unsigned, T value, int from, int = 32) {
    return standin::exchange(value, (unsigned)from);
}
template <typename T> static T __shfl_down_sync(unsigned, T value, unsigned by, int = 32) {
    unsigned lane = threadIdx.x % 32;
    return standin::exchange(value, lane + by < 32 ? lane + by : lane);
}
template <typename T> static T __shfl_up_sync(unsigned, T value, unsigned by, int = 32) {
    unsigned lane = threadIdx.x % 32;
    return standin::exchange(value, lane >= by ? lane - by : lane);
}
template <typename T> static T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
    return standin::exchange(value, threadIdx.x % 32 ^ (unsigned)mask);
}
static inline unsigned __ballot_sync(unsigned, int yes) {
    unsigned all = 0;
    for (unsigned t = 0; t < 32; t++)
        all |= (unsigned)(standin::exchange(yes != 0, t) && threadIdx.x / 32 * 32 + t < blockDim.x) << t;
    return all;
}

/* ---- functions ---- */

static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline int __mulhi(int a, int b) {
    return (int)((long long)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
template <typename To, typename From> static inline To standin_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof(to));
    return to;
}
#define __double_as_longlong(x) standin_bits<long long>((double)(x))
#define __longlong_as_double(x) standin_bits<double>((long long)(x))
#define __float_as_int(x) standin_bits<int>((float)(x))
#define __float_as_uint(x) standin_bits<unsigned>((float)(x))
#define __int_as_float(x) standin_bits<float>((int)(x))
#define __uint_as_float(x) standin_bits<float>((unsigned)(x))
#define __popc(x) __builtin_popcount(x)
#define __popcll(x) __builtin_popcountll(x)
#define __clz(x) ((x) ? __builtin_clz(x) : 32)
#define __clzll(x) ((x) ? __builtin_clzll(x) : 64)
#define __ffs(x) __builtin_ffs(x)
template <typename T> static inline T __ldg(const T *at) {
    return *at;
}
template <typename T> static inline T max(T a, T b) {
    return a > b ? a : b;
}
template <typename T> static inline T min(T a, T b) {
    return a < b ? a : b;
}

/* ---- atomic operations: one thread runs at a time ---- */

template <typename T, typename F> static inline T standin_atomic(T *at, F change) {
    T old = *at;
    *at = change(old);
    return old;
}
template <typename T> static inline T atomicAdd(T *at, T x) {
    return standin_atomic(at, [=](T old) { return (T)(old + x); });
}
template <typename T> static inline T atomicSub(T *at, T x) {
    return standin_atomic(at, [=](T old) { return (T)(old - x); });
}
template <typename T> static inline T atomicMax(T *at, T x) {
    return standin_atomic(at, [=](T old) { return old > x ? old : x; });
}
template <typename T> static inline T atomicMin(T *at, T x) {
    return standin_atomic(at, [=](T old) { return old < x ? old : x; });
}
template <typename T> static inline T atomicOr(T *at, T x) {
    return standin_atomic(at, [=](T old) { return (T)(old | x); });
}
template <typename T> static inline T atomicAnd(T *at, T x) {
    return standin_atomic(at, [=](T old) { return (T)(old & x); });
}
template <typename T> static inline T atomicExch(T *at, T x) {
    return standin_atomic(at, [=](T) { return x; });
}
template <typename T> static inline T atomicCAS(T *at, T expected, T x) {
    return standin_atomic(at, [=](T old) { return old == expected ? x : old; });
}

/* ---- CUB: results are where CUB promises them; nobody but thread 0 gets a reduction's ---- */

namespace cub {
enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
struct Sum {
    template <typename T> T operator()(T a, T b) const {
        return a + b;
    }
};
struct Max {
    template <typename T> T operator()(T a, T b) const {
        return a > b ? a : b;
    }
};
struct Min {
    template <typename T> T operator()(T a, T b) const {
        return a < b ? a : b;
    }
};

/* Raw bytes: a static object with a constructor is not shared memory. */
template <typename T, int n> struct Storage {
    alignas(T) unsigned char bytes[sizeof(T) * n];
    T get(int i) const {
        T x;
        __builtin_memcpy((void *)&x, bytes + sizeof(T) * i, sizeof(T));
        return x;
    }
    void set(int i, const T &x) {
        __builtin_memcpy(bytes + sizeof(T) * i, (const void *)&x, sizeof(T));
    }
};

template <typename T, int n, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int = 1, int = 1> class BlockReduce {
  public:
    typedef Storage<T, n> TempStorage;
    explicit BlockReduce(TempStorage &storage) : s(storage) {}
    template <typename F> T Reduce(T x, F f, int valid = n) {
        s.set((int)threadIdx.x, x);
        standin_host.barrier(-5);
        if (threadIdx.x == 0)
            for (int i = 1; i < valid; i++)
                x = f(x, s.get(i));
        return x;
    }
    T Sum(T x, int valid = n) {
        return Reduce(x, cub::Sum(), valid);
    }

  private:
    TempStorage &s;
};

template <typename T, int n, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int = 1, int = 1> class BlockScan {
  public:
    typedef Storage<T, n> TempStorage;
    explicit BlockScan(TempStorage &storage) : s(storage) {}
    template <typename F> void InclusiveScan(T x, T &out, F f) {
        T all;
        InclusiveScan(x, out, f, all);
    }
    template <typename F> void InclusiveScan(T x, T &out, F f, T &all) {
        share(x);
        all = s.get(0);
        out = all;
        for (int i = 1; i < n; i++) {
            all = f(all, s.get(i));
            if (i <= (int)threadIdx.x)
                out = all;
        }
    }
    template <typename F> void ExclusiveScan(T x, T &out, T initial, F f) {
        T all;
        ExclusiveScan(x, out, initial, f, all);
    }
    template <typename F> void ExclusiveScan(T x, T &out, T initial, F f, T &all) {
        share(x);
        out = initial;
        for (int i = 0; i < (int)threadIdx.x; i++)
            out = f(out, s.get(i));
        all = s.get(0);
        for (int i = 1; i < n; i++)
            all = f(all, s.get(i));
    }
    void InclusiveSum(T x, T &out) {
        InclusiveScan(x, out, cub::Sum());
    }
    void InclusiveSum(T x, T &out, T &all) {
        InclusiveScan(x, out, cub::Sum(), all);
    }
    void ExclusiveSum(T x, T &out) {
        ExclusiveScan(x, out, T(0), cub::Sum());
    }
    void ExclusiveSum(T x, T &out, T &all) {
        ExclusiveScan(x, out, T(0), cub::Sum(), all);
    }

  private:
    TempStorage &s;
    void share(T x) {
        s.set((int)threadIdx.x, x);
        standin_host.barrier(-6);
    }
};

template <typename T, int n = 32> class WarpReduce {
  public:
    typedef Storage<T, 1> TempStorage;
    explicit WarpReduce(TempStorage &) {}
    template <typename F> T Reduce(T x, F f) {
        for (int by = n / 2; by > 0; by /= 2) {
            T other = __shfl_down_sync(~0u, x, (unsigned)by);
            if ((int)threadIdx.x % n + by < n)
                x = f(x, other);
        }
        return x;
    }
    T Sum(T x) {
        return Reduce(x, cub::Sum());
    }
};
} // namespace cub
