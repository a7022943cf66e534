// Log densities of one row under its components, and their gradient.
#ifndef SEEGERA_REGISTER

#include "mixture.h"

#include "math.h"

namespace seegera {
namespace SEEGERA_ISA {

// Numbers of the next row are fetched into this cache, as __builtin_prefetch counts them, while a row is computed: the
// same columns, at the same pace. An address behind the last row does no harm.
constexpr int kSecondCache = 2;

// The draw that is component k of sample j: first the K extra draws, then draw K + j.
inline int64_t component_draw(int64_t extra, int64_t j, int64_t k) { return k < extra ? k : extra + j; }

// Loads a whole vector, or a part of one at the end of a row.
#define SEEGERA_LOAD(pointer) (count == lanes ? load<V>(pointer) : load_part<V>(pointer, count))

// deviations [V, d rounded up to whole vectors] = 1 / sigma, zeros behind the end; normalisers [V] = sum over d of
// log_var + log(2 pi).
template <typename T>
inline void row_deviations(const Mixture<T>& p, int64_t row, T* deviations, int64_t stride, double* normalisers) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    for (int64_t draw = 0; draw < p.variances; ++draw) {
        const T* log_var = p.log_var + (row * p.variances + draw) * p.width;
        V sum{};
        for (int64_t i = 0; i < p.width; i += lanes) {
            const int64_t count = p.width - i < lanes ? p.width - i : lanes;
            __builtin_prefetch(log_var + p.variances * p.width + i, 0, kSecondCache);
            const V value = bounded_log_var(V(SEEGERA_LOAD(log_var + i)));
            sum += value;
            V deviation = inverse_deviation(value);
            if (count < lanes) {
                // exp(0) behind the end must not count.
                deviation = load_part<V>(reinterpret_cast<const T*>(&deviation), count);
            }
            store(deviations + draw * stride + i, deviation);
        }
        normalisers[draw] = horizontal_sum_double(sum) + p.width * 1.8378770664093454836;
    }
}

// Of the next row, what is fetched while a sample meets its components.
template <typename T>
struct NextRow {
    const T* z;
    const T* own_mean;
    const T* extra_mean;
};

// sums[c] = sum over d of ((z - mean_c) / sigma_c)^2 for Count components, with one read of z for all.
template <int Count, typename T>
inline void sum_squares(const T* z, const T* const* means, const T* const* deviations, int64_t width,
                        const NextRow<T>& next, double* sums) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    V total[Count] = {};
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
        const V sample = load<V>(z + i);
        __builtin_prefetch(next.z + i, 0, kSecondCache);
        __builtin_prefetch(next.own_mean + i, 0, kSecondCache);
        __builtin_prefetch(next.extra_mean + i, 0, kSecondCache);
        for (int c = 0; c < Count; ++c) {
            const V difference = (sample - load<V>(means[c] + i)) * load<V>(deviations[c] + i);
            total[c] += difference * difference;
        }
    }
    if (i < width) {
        const V sample = load_part<V>(z + i, width - i);
        for (int c = 0; c < Count; ++c) {
            const V difference = (sample - load_part<V>(means[c] + i, width - i)) * load<V>(deviations[c] + i);
            total[c] += difference * difference;
        }
    }
    for (int c = 0; c < Count; ++c) {
        sums[c] = horizontal_sum_double(total[c]);
    }
}

template <typename T>
void row_densities(const Mixture<T>& p, int64_t row, T* deviations, int64_t stride, double* normalisers,
                   double* densities) {
    row_deviations(p, row, deviations, stride, normalisers);
    constexpr int most = 6;
    const int64_t draws = p.extra + p.samples;
    for (int64_t j = 0; j < p.samples; ++j) {
        const T* z = p.z + (row * p.samples + j) * p.width;
        const T* next_means = p.means + (row + 1) * draws * p.width;
        // An extra draw at a time: of as many as there are samples, all.
        const NextRow<T> next{z + p.samples * p.width, next_means + (p.extra + j) * p.width,
                              next_means + (p.extra > 0 ? j % p.extra : 0) * p.width};
        int64_t count;
        for (int64_t begin = 0; begin <= p.extra; begin += count) {
            const int64_t left = p.extra + 1 - begin;
            count = left >= most ? most : left;
            const T *mean[most], *deviation[most];
            for (int64_t c = 0; c < count; ++c) {
                const int64_t draw = component_draw(p.extra, j, begin + c);
                mean[c] = p.means + (row * draws + draw) * p.width;
                deviation[c] = deviations + (p.variances == 1 ? 0 : draw) * stride;
            }
            double* of_sample = densities + j * (p.extra + 1) + begin;
            switch (count) {
                case 6:
                    sum_squares<6>(z, mean, deviation, p.width, next, of_sample);
                    break;
                case 5:
                    sum_squares<5>(z, mean, deviation, p.width, next, of_sample);
                    break;
                case 4:
                    sum_squares<4>(z, mean, deviation, p.width, next, of_sample);
                    break;
                case 3:
                    sum_squares<3>(z, mean, deviation, p.width, next, of_sample);
                    break;
                case 2:
                    sum_squares<2>(z, mean, deviation, p.width, next, of_sample);
                    break;
                default:
                    sum_squares<1>(z, mean, deviation, p.width, next, of_sample);
            }
            for (int64_t c = 0; c < count; ++c) {
                const int64_t draw = component_draw(p.extra, j, begin + c);
                of_sample[c] = -0.5 * (of_sample[c] + normalisers[p.variances == 1 ? 0 : draw]);
            }
        }
    }
}

// Whether a number is +0, by its bits: one instruction, where a comparison of floating-point numbers is three.
inline bool is_zero(const float* number) {
    int32_t bits;
    __builtin_memcpy(&bits, number, sizeof(bits));
    return bits == 0;
}
inline bool is_zero(const double* number) {
    int64_t bits;
    __builtin_memcpy(&bits, number, sizeof(bits));
    return bits == 0;
}

// What it captures stays in registers only where it is inlined.
#define SEEGERA_INLINE __attribute__((always_inline))

// Gradients of sum_jk weights[j, k] densities[j, k] in the columns [i, i + kMixtureBlock vectors) of one row, fewer
// where they end; weights, totals: see row_gradient. Samples: their number, where it is so small that the samples and
// their gradients stay in registers; 0: as many as there are, with the gradients in scratch, [J, kMixtureBlock
// vectors].
template <int Samples, bool OneVariance, bool Whole, typename T>
inline void block_gradient(const Mixture<T>& p, const MixtureGradient<T>& g, int64_t row, const T* weights,
                           const T* totals, int64_t i, T* scratch) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    constexpr int in_registers = Samples > 0 ? Samples : 1;
    const int64_t samples = Samples > 0 ? Samples : p.samples;
    const int64_t draws = p.extra + samples;
    const int64_t components = p.extra + 1;
    const T* z = p.z + row * samples * p.width + i;
    const T* means = p.means + row * draws * p.width + i;
    const T* log_var = p.log_var + row * p.variances * p.width + i;
    const auto part = [&](int64_t v) SEEGERA_INLINE {
        const int64_t left = p.width - i - v * lanes;
        return left < 0 ? int64_t{0} : left < lanes ? left : lanes;
    };
    const auto read = [&](const T* from, int64_t v) SEEGERA_INLINE {
        return Whole ? load<V>(from + v * lanes) : part(v) ? load_part<V>(from + v * lanes, part(v)) : V{};
    };
    const auto write = [&](T* to, int64_t v, const V& value) SEEGERA_INLINE {
        if (Whole && g.streamed) {
            stream(to + v * lanes, value);
        } else if (Whole) {
            store(to + v * lanes, value);
        } else if (part(v)) {
            store_part<V>(to + v * lanes, value, part(v));
        }
    };
    constexpr int64_t line = kLineBytes / sizeof(T);
    for (int64_t at = 0; at < kMixtureBlock * lanes; at += line) {
        for (int64_t j = 0; j < samples; ++j) {
            __builtin_prefetch(z + (samples + j) * p.width + at, 0, kSecondCache);
        }
        for (int64_t draw = 0; draw < draws; ++draw) {
            __builtin_prefetch(means + (draws + draw) * p.width + at, 0, kSecondCache);
        }
        for (int64_t draw = 0; draw < p.variances; ++draw) {
            __builtin_prefetch(log_var + (p.variances + draw) * p.width + at, 0, kSecondCache);
        }
    }
    V sample[in_registers][kMixtureBlock], of_sample[in_registers][kMixtureBlock];
    if constexpr (Samples > 0) {
        for (int j = 0; j < Samples; ++j) {
            for (int v = 0; v < kMixtureBlock; ++v) {
                sample[j][v] = read(z + j * p.width, v);
                of_sample[j][v] = V{};
            }
        }
    } else {
        for (int64_t at = 0; at < samples * kMixtureBlock; ++at) {
            store(scratch + at * lanes, V{});
        }
    }
    // With one variance, the sums over draws are multiplied by 1 / sigma instead of their terms.
    V deviation[kMixtureBlock] = {}, shared[kMixtureBlock] = {}, mean[kMixtureBlock], sum[kMixtureBlock];
    const auto begin_draw = [&](int64_t draw) SEEGERA_INLINE {
        for (int v = 0; v < kMixtureBlock; ++v) {
            if (draw == 0 || !OneVariance) {
                deviation[v] = inverse_deviation(bounded_log_var(read(log_var + draw * p.width, v)));
                shared[v] = V{};
            }
            mean[v] = read(means + draw * p.width, v);
            sum[v] = V{};
        }
    };
    const auto add = [&](auto j, int64_t k) SEEGERA_INLINE {
        const T* weight = weights + j * components + k;
        // Where it is 0 the difference may be infinite or NaN.
        if (is_zero(weight)) {
            return;
        }
        for (int v = 0; v < kMixtureBlock; ++v) {
            const V from = Samples > 0 ? sample[Samples > 0 ? j : 0][v] : read(z + j * p.width, v);
            const V difference = (from - mean[v]) * deviation[v];
            const V pull = *weight * difference;
            sum[v] += pull;
            shared[v] += pull * difference;
            const V moved = OneVariance ? pull : pull * deviation[v];
            if constexpr (Samples > 0) {
                of_sample[j][v] -= moved;
            } else {
                T* target = scratch + (j * kMixtureBlock + v) * lanes;
                store(target, load<V>(target) - moved);
            }
        }
    };
    const auto end_draw = [&](int64_t draw) SEEGERA_INLINE {
        for (int v = 0; v < kMixtureBlock; ++v) {
            shared[v] -= totals[draw];
            write(g.means + (row * draws + draw) * p.width + i, v, weighted(sum[v], deviation[v]));
            if (!OneVariance || draw + 1 == draws) {
                const int64_t variance = OneVariance ? 0 : draw;
                const V slope = keep<V>(in_range(read(log_var + variance * p.width, v)), shared[v]);
                write(g.log_var + (row * p.variances + variance) * p.width + i, v, slope * T(0.5));
            }
        }
    };
    const auto each_sample = [&](const auto& use) SEEGERA_INLINE {
        if constexpr (Samples > 0) {
#pragma GCC unroll 8
            for (int j = 0; j < Samples; ++j) {
                use(j);
            }
        } else {
            for (int64_t j = 0; j < samples; ++j) {
                use(j);
            }
        }
    };
    // An extra draw is a component of every sample, draw K + j of sample j alone.
    for (int64_t draw = 0; draw < p.extra; ++draw) {
        begin_draw(draw);
        each_sample([&](auto j) SEEGERA_INLINE { add(j, draw); });
        end_draw(draw);
    }
    each_sample([&](auto j) SEEGERA_INLINE {
        begin_draw(p.extra + j);
        add(j, p.extra);
        end_draw(p.extra + j);
    });
    each_sample([&](auto j) SEEGERA_INLINE {
        for (int v = 0; v < kMixtureBlock; ++v) {
            const V found =
                Samples > 0 ? of_sample[Samples > 0 ? j : 0][v] : load<V>(scratch + (j * kMixtureBlock + v) * lanes);
            write(g.z + (row * samples + j) * p.width + i, v, OneVariance ? weighted(found, deviation[v]) : found);
        }
    });
}

template <int Samples, bool OneVariance, typename T>
void row_gradient_of(const Mixture<T>& p, const MixtureGradient<T>& g, int64_t row, const T* weights, const T* totals,
                     T* scratch) {
    constexpr int64_t step = kMixtureBlock * kVectorBytes / sizeof(T);
    int64_t i = 0;
    for (; i + step <= p.width; i += step) {
        block_gradient<Samples, OneVariance, true>(p, g, row, weights, totals, i, scratch);
    }
    if (i < p.width) {
        // With a variance for each draw, one function for any number of samples: each takes long to compile.
        constexpr int samples = OneVariance ? Samples : 0;
        block_gradient<samples, OneVariance, false>(p, g, row, weights, totals, i, scratch);
    }
}

template <bool OneVariance, typename T>
void row_gradient_of(const Mixture<T>& p, const MixtureGradient<T>& g, int64_t row, const T* weights, const T* totals,
                     T* scratch) {
    switch (p.samples) {
        case 1:
            return row_gradient_of<1, OneVariance>(p, g, row, weights, totals, scratch);
        case 2:
            return row_gradient_of<2, OneVariance>(p, g, row, weights, totals, scratch);
        case 3:
            return row_gradient_of<3, OneVariance>(p, g, row, weights, totals, scratch);
        case 4:
            return row_gradient_of<4, OneVariance>(p, g, row, weights, totals, scratch);
        case 5:
            return row_gradient_of<5, OneVariance>(p, g, row, weights, totals, scratch);
        default:
            return row_gradient_of<0, OneVariance>(p, g, row, weights, totals, scratch);
    }
}

template <typename T>
void row_gradient(const Mixture<T>& p, const MixtureGradient<T>& g, int64_t row, const T* weights, T* scratch) {
    // What every block of columns would compute again: the weights with +0 for -0, and their sum for each draw.
    const int64_t components = p.extra + 1;
    T* of_pairs = scratch;
    T* totals = of_pairs + p.samples * components;
    for (int64_t k = 0; k < p.extra; ++k) {
        totals[k] = 0;
    }
    for (int64_t j = 0; j < p.samples; ++j) {
        for (int64_t k = 0; k < components; ++k) {
            const T weight = weights[j * components + k] + T(0);
            of_pairs[j * components + k] = weight;
            T* total = totals + component_draw(p.extra, j, k);
            *total = k < p.extra ? *total + weight : weight;
        }
    }
    T* of_samples = totals + p.extra + p.samples;
    if (p.variances == 1) {
        row_gradient_of<true>(p, g, row, of_pairs, totals, of_samples);
    } else {
        row_gradient_of<false>(p, g, row, of_pairs, totals, of_samples);
    }
}

#undef SEEGERA_INLINE
#undef SEEGERA_LOAD

#define SEEGERA_INSTANTIATE(T)                                                              \
    template void row_densities(const Mixture<T>&, int64_t, T*, int64_t, double*, double*); \
    template void row_gradient(const Mixture<T>&, const MixtureGradient<T>&, int64_t, const T*, T*);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#endif
