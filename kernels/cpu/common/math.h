// Elementary functions on vectors, for the kernel half of a file; what holds for V and the bits is in vector.h.
//
// The polynomials are minimax fits to the functions on the reduced ranges named beside them. Relative error on the
// whole range, measured, in units of the last place (float, double): exp 2.4 and 1.2, log 1.3, softplus 4 and 5,
// sigmoid 3.6, tanh 2.
#pragma once

#include <cstdint>

#include "isa.h"
#include "vector.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
struct MathConstants;

template <>
struct MathConstants<float> {
    static constexpr int kMantissaBits = 23;
    static constexpr int32_t kExponentBias = 127;
    // 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits.
    static constexpr float kRound = 12582912.0f;
    static constexpr float kLog2E = 1.44269504f;
    static constexpr float kLn2High = 0.693115234f;  // few bits, so that a product with an exponent is exact
    static constexpr float kLn2Low = 3.19461849e-05f;
    static constexpr float kExpLowest = -104.0f;
    static constexpr float kExpHighest = 89.0f;
    static constexpr float kExpVanishes = -88.1f;  // rounds to the exponent -127, whose power of two is written as 0
    static constexpr int32_t kSqrtHalf = 0x3f3504f3;
    static constexpr float kTanhSmall = 0.625f;
    // (exp(r) - 1 - r) / r^2, |r| <= ln(2) / 2
    static constexpr float kExp[] = {0.499992316f, 0.166671145f, 0.0418901467f, 0.00831253458f};
    // (log(1 + f) - f + f^2 / 2) / f^3, sqrt(1/2) <= 1 + f <= sqrt(2)
    static constexpr float kLog[] = {0.333339118f, -0.250013414f, 0.199630175f, -0.165774088f,
                                     0.149151272f, -0.142691529f, 0.0870154998f};
    // log(1 + e) / e, 0 <= e <= 1
    static constexpr float kLog1p[] = {0.99999997f,  -0.499994931f, 0.333190966f,   -0.248429803f, 0.191059995f,
                                       -0.13663231f, 0.0782257877f, -0.0295051447f, 0.00523267248f};
    // (tanh(x) / x - 1) / x^2 in x^2, |x| <= 0.625
    static constexpr float kTanh[] = {-0.333332819f, 0.133314423f, -0.0537397193f, 0.0206390988f, -0.005704998f};
    // sin(2 pi f) / f and (cos(2 pi f) - 1) / f^2 in f^2, |f| <= 1/8
    static constexpr float kSine[] = {6.28318529f, -41.3416615f, 81.5923536f, -75.3935629f};
    static constexpr float kCosine[] = {-19.7392087f, 64.9393218f, -85.4432364f, 59.2292462f};
};

template <>
struct MathConstants<double> {
    static constexpr int kMantissaBits = 52;
    static constexpr int64_t kExponentBias = 1023;
    static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
    static constexpr double kLog2E = 1.4426950408889634;
    static constexpr double kLn2High = 0.69314718055966296;
    static constexpr double kLn2Low = 2.8235290563031577e-13;
    static constexpr double kExpLowest = -746.0;
    static constexpr double kExpHighest = 710.0;
    static constexpr double kExpVanishes = -709.2;  // rounds to the exponent -1023
    static constexpr int64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
    static constexpr double kTanhSmall = 0.625;
    static constexpr double kExp[] = {0.50000000000000111,    0.16666666666666413,    0.041666666666530183,
                                      0.0083333333334944405,  0.0013888888943622644,  0.00019841269506603169,
                                      2.4801493107608523e-05, 2.7557586371192624e-06, 2.7630244980204919e-07,
                                      2.5000056416924341e-08};
    // (2 atanh(s) / s - 2) / s^2 in s^2, s^2 <= 0.0295
    static constexpr double kLog[] = {0.6666666666666734, 0.39999999999413627, 0.28571428742687549, 0.22222198536032348,
                                      0.1818356657268197, 0.15313985345561049, 0.14796676365099823};
    // the same for s^2 <= 1/9
    static constexpr double kLog1p[] = {
        0.66666666666666308, 0.40000000000155117, 0.2857142854811765,  0.22222223953671616,  0.18181744478101375,
        0.15386548414999429, 0.13301121067442345, 0.12104947499713463, 0.083449596641070586, 0.17009779345427742};
    static constexpr double kTanh[] = {-0.33333333333332854,  0.13333333333262096,    -0.053968253931268861,
                                       0.02186948757611485,   -0.0088632210028395768, 0.0035919891751790551,
                                       -0.001454958883787983, 0.00058631655640127968, -0.00022856423906362597,
                                       7.714439437551245e-05, -1.6072581641171246e-05};
    static constexpr double kSine[] = {6.2831853071795862, -41.341702240399634, 81.605249275944516, -76.705859703315781,
                                       42.058684902124085, -15.093797508589912, 3.7807262312744174};
    static constexpr double kCosine[] = {-19.739208802178716, 64.939394022667983,  -85.456817206528285,
                                         60.24464132938531,   -26.426250927268697, 7.9030915890384748,
                                         -1.6968347141936062};
};

template <typename V, int Count>
inline V polynomial(V x, const Element<V> (&coefficients)[Count]) {
    V sum = splat<V>(coefficients[Count - 1]);
    for (int i = Count - 2; i >= 0; --i) {
        sum = multiply_add(sum, x, splat<V>(coefficients[i]));
    }
    return sum;
}

// 2^exponent, as long as it is a normal number; 0 for the exponent just below.
template <typename V>
inline V power_of_two(Bits<V> exponent) {
    typedef MathConstants<Element<V>> C;
    return bits_as<V>((exponent + C::kExponentBias) << C::kMantissaBits);
}

// exp(x) = fraction * 2^exponent, where the exponent is an integer (as a number, and plus C::kRound).
template <typename V>
inline V exp_parts(V x, V& shifted, V& exponent) {
    typedef MathConstants<Element<V>> C;
    shifted = multiply_add(x, splat<V>(C::kLog2E), splat<V>(C::kRound));
    exponent = shifted - C::kRound;
    V r = multiply_add(exponent, splat<V>(-C::kLn2High), x);
    r = multiply_add(exponent, splat<V>(-C::kLn2Low), r);
    const V rest = multiply_add(polynomial(r, C::kExp), r, splat<V>(1));
    return multiply_add(rest, r, splat<V>(1));
}

template <typename V>
inline Bits<V> rounded_integer(V shifted) {
    typedef MathConstants<Element<V>> C;
    return bits_as<Bits<V>>(shifted) - bits_as<Bits<V>>(splat<V>(C::kRound));
}

// On all numbers; denormal results, 0 and infinity where they belong.
template <typename V>
inline V exp(V x) {
    typedef MathConstants<Element<V>> C;
    V shifted, exponent;
    const V fraction = exp_parts(at_most(at_least(x, C::kExpLowest), C::kExpHighest), shifted, exponent);
    // The power is split in two, since it may lie outside the normal numbers where the result does not.
    const Bits<V> first = rounded_integer(multiply_add(exponent, splat<V>(0.5), splat<V>(C::kRound)));
    const Bits<V> second = rounded_integer(shifted) - first;
    return fraction * power_of_two<V>(first) * power_of_two<V>(second);
}

// For x <= 0, faster: what would be a denormal number is 0.
template <typename V>
inline V exp_nonpositive(V x) {
    typedef MathConstants<Element<V>> C;
    V shifted, exponent;
    const V fraction = exp_parts(at_least(x, C::kExpVanishes), shifted, exponent);
    return fraction * power_of_two<V>(rounded_integer(shifted));
}

// Log variances are kept in [-30, 30]; seegera_fast/reference/normal_density.py says why. A NaN stays.
constexpr int kMostLogVar = 30;

template <typename V>
inline V bounded_log_var(const V& log_var) {
    return at_least(at_most(log_var, kMostLogVar), -kMostLogVar);
}

// Where a log variance is in that range. Elsewhere nothing depends on it.
template <typename V>
inline Mask<V> in_range(const V& log_var) {
    return less_equal(magnitude(log_var), splat<V>(kMostLogVar));
}

// 1 / sigma of a bounded log variance. The densities square the product with a difference, and not this, so that less
// overflows.
template <typename V>
inline V inverse_deviation(const V& bounded) {
    return exp(bounded * Element<V>(-0.5));
}

// For normal x > 0.
template <typename V>
inline V log(V x) {
    typedef MathConstants<Element<V>> C;
    // 2^exponent * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2).
    const Mask<V> bits = bits_as<Mask<V>>(x);
    const Bits<V> whole = bits_as<Bits<V>>((bits - C::kSqrtHalf) >> C::kMantissaBits);
    const V f = bits_as<V>(bits_as<Bits<V>>(x) - (whole << C::kMantissaBits)) - 1;
    // An integer to a floating number: its bits behind those of kRound.
    const V exponent = bits_as<V>(whole + bits_as<Bits<V>>(splat<V>(C::kRound))) - C::kRound;
    if constexpr (sizeof(Element<V>) == sizeof(float)) {
        const V square = f * f;
        const V tail = multiply_add(polynomial(f, C::kLog), f, splat<V>(-0.5));
        const V low = multiply_add(tail, square, multiply_add(exponent, splat<V>(C::kLn2Low), f));
        return multiply_add(exponent, splat<V>(C::kLn2High), low);
    } else {
        // log(1 + f) = 2 atanh(s) = f - s (f - s^2 R), where f - s f = 2 s keeps the error in the small term.
        const V s = f / (f + 2);
        const V square = s * s;
        const V small = multiply_add(-polynomial(square, C::kLog), square, f);
        const V low = multiply_add(-s, small, multiply_add(exponent, splat<V>(C::kLn2Low), f));
        return multiply_add(exponent, splat<V>(C::kLn2High), low);
    }
}

// softplus(s) = log(1 + exp(s)) and its derivative, the sigmoid, from one exponential; finite for every finite s.
template <typename V>
inline void softplus_sigmoid(V s, V& softplus, V& sigmoid) {
    typedef MathConstants<Element<V>> C;
    const V e = exp_nonpositive(negative_magnitude(s));
    const Mask<V> below = less(s, V{});
    const V positive = select(below, V{}, s);
    const V above_one = e + 1;
    if constexpr (sizeof(Element<V>) == sizeof(float)) {
        softplus = multiply_add(polynomial(e, C::kLog1p), e, positive);
        sigmoid = select(below, e, splat<V>(1)) / above_one;
    } else {
        // One division for 1 / (1 + e) and for s = e / (2 + e) with log(1 + e) = 2 atanh(s).
        const V above_two = e + 2;
        const V both = 1 / (above_one * above_two);
        const V ratio = e * above_one * both;
        const V square = ratio * ratio;
        softplus = multiply_add(multiply_add(polynomial(square, C::kLog1p), square, splat<V>(2)), ratio, positive);
        sigmoid = select(below, e, splat<V>(1)) * (above_two * both);
    }
}

template <typename V>
inline V softplus(V s) {
    V value, slope;
    softplus_sigmoid(s, value, slope);
    return value;
}

template <typename V>
inline V sigmoid(V s) {
    const V e = exp_nonpositive(negative_magnitude(s));
    return select(less(s, V{}), e, splat<V>(1)) / (e + 1);
}

template <typename V>
inline V tanh(V x) {
    typedef MathConstants<Element<V>> C;
    const V square = x * x;
    const V small = multiply_add(polynomial(square, C::kTanh) * square, x, x);
    const V e = exp_nonpositive(negative_magnitude(x) * 2);
    const V large = (1 - e) / (e + 1);
    const V with_sign = bits_as<V>(bits_as<Bits<V>>(large) | (bits_as<Bits<V>>(x) & sign_bit<V>()));
    return select(less(magnitude(x), splat<V>(C::kTanhSmall)), small, with_sign);
}

// sin(2 pi u) and cos(2 pi u) for 0 <= u < 1.
template <typename V>
inline void sine_cosine_of_turns(V u, V& sine, V& cosine) {
    typedef MathConstants<Element<V>> C;
    const V shifted = multiply_add(u, splat<V>(4), splat<V>(C::kRound));
    const Bits<V> quarter = rounded_integer(shifted);
    // The nearest quarter turn is taken off: exact, since f has no more bits than u.
    const V f = multiply_add(shifted - C::kRound, splat<V>(-0.25), u);
    const V square = f * f;
    const V s = polynomial(square, C::kSine) * f;
    const V c = multiply_add(polynomial(square, C::kCosine), square, splat<V>(1));
    const Mask<V> odd = bits_as<Mask<V>>(-(quarter & 1));
    const Bits<V> sine_sign = (quarter & 2) << (8 * sizeof(Element<V>) - 2);
    const Bits<V> cosine_sign = ((quarter + 1) & 2) << (8 * sizeof(Element<V>) - 2);
    sine = bits_as<V>(bits_as<Bits<V>>(select(odd, c, s)) ^ sine_sign);
    cosine = bits_as<V>(bits_as<Bits<V>>(select(odd, s, c)) ^ cosine_sign);
}

}  // namespace SEEGERA_ISA
}  // namespace seegera
