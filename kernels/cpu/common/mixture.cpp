// Log densities of one row under its components, and their gradient.
#ifndef SEEGERA_REGISTER

#include "mixture.h"

#include "math.h"

namespace seegera {
namespace SEEGERA_ISA {

// The draw that is component k of sample j: first the K extra draws, then draw K + j.
inline int64_t component_draw(int64_t extra, int64_t j, int64_t k) { return k < extra ? k : extra + j; }

// Loads a whole vector, or a part of one at the end of a row.
#define SEEGERA_LOAD(pointer) (count == lanes ? load<V>(pointer) : load_part<V>(pointer, count))

// Prefetches a line of the next row: a row has many lines, which are too short for the processor to recognize the
// pattern.
template <typename T>
inline void fetch(const T* line, int64_t width) {
    for (int64_t i = 0; i < width; i += kLineBytes / static_cast<int64_t>(sizeof(T))) {
        __builtin_prefetch(line + i);
    }
}

// deviations [V, d rounded up to whole vectors] = 1 / sigma, zeros behind the end; normalisers [V] = sum over d of
// log_var + log(2 pi).
template <typename T>
inline void row_deviations(const Mixture<T>& p, int64_t row, T* deviations, int64_t stride, double* normalisers) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    for (int64_t draw = 0; draw < p.variances; ++draw) {
        const T* log_var = p.log_var + (row * p.variances + draw) * p.width;
        fetch(log_var + p.variances * p.width, p.width);
        V sum{};
        for (int64_t i = 0; i < p.width; i += lanes) {
            const int64_t count = p.width - i < lanes ? p.width - i : lanes;
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

// sums[c] = sum over d of ((z - mean_c) / sigma_c)^2 for Count components, with one read of z for all.
template <int Count, typename T>
inline void sum_squares(const T* z, const T* const* means, const T* const* deviations, int64_t width, double* sums) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    V total[Count] = {};
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
        const V sample = load<V>(z + i);
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
        fetch(z + p.samples * p.width, p.width);
        int64_t count;
        for (int64_t begin = 0; begin <= p.extra; begin += count) {
            const int64_t left = p.extra + 1 - begin;
            count = left >= most ? most : left;
            const T *mean[most], *deviation[most];
            for (int64_t c = 0; c < count; ++c) {
                const int64_t draw = component_draw(p.extra, j, begin + c);
                mean[c] = p.means + (row * draws + draw) * p.width;
                deviation[c] = deviations + (p.variances == 1 ? 0 : draw) * stride;
                if (j == 0 || draw >= p.extra) {
                    fetch(mean[c] + draws * p.width, p.width);
                }
            }
            double* of_sample = densities + j * (p.extra + 1) + begin;
            switch (count) {
                case 6:
                    sum_squares<6>(z, mean, deviation, p.width, of_sample);
                    break;
                case 5:
                    sum_squares<5>(z, mean, deviation, p.width, of_sample);
                    break;
                case 4:
                    sum_squares<4>(z, mean, deviation, p.width, of_sample);
                    break;
                case 3:
                    sum_squares<3>(z, mean, deviation, p.width, of_sample);
                    break;
                case 2:
                    sum_squares<2>(z, mean, deviation, p.width, of_sample);
                    break;
                default:
                    sum_squares<1>(z, mean, deviation, p.width, of_sample);
            }
            for (int64_t c = 0; c < count; ++c) {
                const int64_t draw = component_draw(p.extra, j, begin + c);
                of_sample[c] = -0.5 * (of_sample[c] + normalisers[p.variances == 1 ? 0 : draw]);
            }
        }
    }
}

// Gradients of sum_jk weights[j, k] densities[j, k] in the columns [i, i + kMixtureBlock vectors) of one row, fewer
// where they end. scratch: [J, kMixtureBlock vectors].
template <bool Whole, typename T>
inline void block_gradient(const Mixture<T>& p, const MixtureGradient<T>& g, int64_t row, const T* weights, int64_t i,
                           T* scratch) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    const int64_t draws = p.extra + p.samples;
    const int64_t components = p.extra + 1;
    const T* z = p.z + row * p.samples * p.width + i;
    const T* means = p.means + row * draws * p.width + i;
    const T* log_var = p.log_var + row * p.variances * p.width + i;
    const auto part = [&](int64_t v) {
        const int64_t left = p.width - i - v * lanes;
        return left < 0 ? int64_t{0} : left < lanes ? left : lanes;
    };
    const auto read = [&](const T* from, int64_t v) {
        return Whole ? load<V>(from + v * lanes) : part(v) ? load_part<V>(from + v * lanes, part(v)) : V{};
    };
    const auto write = [&](T* to, int64_t v, const V& value) {
        if (Whole && g.streamed) {
            stream(to + v * lanes, value);
        } else if (Whole) {
            store(to + v * lanes, value);
        } else if (part(v)) {
            store_part<V>(to + v * lanes, value, part(v));
        }
    };
    for (int64_t j = 0; j < p.samples; ++j) {
        fetch(z + (p.samples + j) * p.width, kMixtureBlock * lanes);
        for (int64_t v = 0; v < kMixtureBlock; ++v) {
            store(scratch + (j * kMixtureBlock + v) * lanes, V{});
        }
    }
    // With one variance, the sums over draws are multiplied by 1 / sigma instead of their terms.
    const bool one_variance = p.variances == 1;
    V deviation[kMixtureBlock] = {}, shared[kMixtureBlock] = {};
    for (int64_t draw = 0; draw < draws; ++draw) {
        if (draw == 0 || p.variances > 1) {
            for (int v = 0; v < kMixtureBlock; ++v) {
                deviation[v] = inverse_deviation(bounded_log_var(read(log_var + draw * p.width, v)));
                shared[v] = V{};
            }
        }
        // An extra draw is a component of every sample, draw K + j of sample j alone.
        const bool single = draw >= p.extra;
        const int64_t begin = single ? draw - p.extra : 0;
        const int64_t end = single ? begin + 1 : p.samples;
        const int64_t k = single ? p.extra : draw;
        V mean[kMixtureBlock], sum[kMixtureBlock];
        T total = 0;
        fetch(means + (draws + draw) * p.width, kMixtureBlock * lanes);
        for (int v = 0; v < kMixtureBlock; ++v) {
            mean[v] = read(means + draw * p.width, v);
            sum[v] = V{};
        }
        for (int64_t j = begin; j < end; ++j) {
            const T weight = weights[j * components + k];
            // Where it is 0 the difference may be infinite or NaN.
            if (weight == 0) {
                continue;
            }
            total += weight;
            for (int v = 0; v < kMixtureBlock; ++v) {
                const V difference = (read(z + j * p.width, v) - mean[v]) * deviation[v];
                const V pull = weight * difference;
                T* target = scratch + (j * kMixtureBlock + v) * lanes;
                sum[v] += pull;
                shared[v] += pull * difference;
                store(target, load<V>(target) - (one_variance ? pull : pull * deviation[v]));
            }
        }
        for (int v = 0; v < kMixtureBlock; ++v) {
            shared[v] -= total;
            write(g.means + (row * draws + draw) * p.width + i, v, weighted(sum[v], deviation[v]));
            if (p.variances > 1 || draw + 1 == draws) {
                const int64_t variance = p.variances > 1 ? draw : 0;
                const V slope = keep<V>(in_range(read(log_var + variance * p.width, v)), shared[v]);
                write(g.log_var + (row * p.variances + variance) * p.width + i, v, slope * T(0.5));
            }
        }
    }
    for (int64_t j = 0; j < p.samples; ++j) {
        for (int v = 0; v < kMixtureBlock; ++v) {
            const V sum = load<V>(scratch + (j * kMixtureBlock + v) * lanes);
            write(g.z + (row * p.samples + j) * p.width + i, v, one_variance ? weighted(sum, deviation[v]) : sum);
        }
    }
}

template <typename T>
void row_gradient(const Mixture<T>& p, const MixtureGradient<T>& g, int64_t row, const T* weights, T* scratch) {
    constexpr int64_t step = kMixtureBlock * kVectorBytes / sizeof(T);
    int64_t i = 0;
    for (; i + step <= p.width; i += step) {
        block_gradient<true>(p, g, row, weights, i, scratch);
    }
    if (i < p.width) {
        block_gradient<false>(p, g, row, weights, i, scratch);
    }
}

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
