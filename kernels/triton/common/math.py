"""Elementary functions in a kernel, on float32 and float64 blocks, and how float64 arguments are passed to it.

The polynomials are those of kernels/cpu/common/math.h. They cost multiply-adds alone, where a logarithm or a sine of
CUDA's library costs branches and, for the sine, memory.
"""

from __future__ import annotations

import struct

import triton
import triton.language as tl

from seegera_fast.reference import normal_density

MOST_LOG_VAR = tl.constexpr(normal_density.MOST_LOG_VAR)


def bits_of(number: float) -> int:
    """The 64 bits of a number: Triton passes a Python float as float32, an integer as it is."""
    return struct.unpack("<q", struct.pack("<d", number))[0]


@triton.jit
def number_of(bits, dtype: tl.constexpr):
    """The number, in ``dtype``, that ``bits_of`` has packed."""
    return tl.cast(bits, tl.int64).to(tl.float64, bitcast=True).to(dtype)


@triton.jit
def exponential(x):
    """``exp(x)``, accurate to the last digits however large ``x`` is, unlike the float32 ``exp`` of a GPU."""
    if x.dtype == tl.float64:
        result = tl.exp(x)
    else:
        # Whole powers of two are taken off; beyond these bounds the result is 0 or infinite.
        bounded = tl.minimum(tl.maximum(x, -104.0), 89.5)
        power = tl.floor(bounded * 1.44269504 + 0.5)
        rest = (bounded - power * 0.693359375) + power * 2.12194440e-4
        # In two factors, either of which is a normal number.
        whole = power.to(tl.int32)
        half = whole >> 1
        first = ((half + 127) << 23).to(tl.float32, bitcast=True)
        second = ((whole - half + 127) << 23).to(tl.float32, bitcast=True)
        result = tl.where(x == x, tl.exp(rest) * first * second, x)
    return result


@triton.jit
def weighted(weight, value):
    """``weight * value``, and 0 where the weight is 0, even if the value is infinite or NaN."""
    return tl.where(weight == 0.0, 0.0, weight * value)


@triton.jit
def finite(x):
    """``x``, or a number near the largest where it is infinite; a NaN stays."""
    most: tl.constexpr = 3e38 if x.dtype == tl.float32 else 1e308
    return tl.where(tl.abs(x) == float("inf"), tl.where(x < 0.0, -most, most), x)


@triton.jit
def bounded_log_var(log_var):
    """A log variance in its range, see reference/normal_density.py, and a mask of where it was inside. A NaN stays."""
    inside = tl.abs(log_var) <= MOST_LOG_VAR
    end = tl.where(log_var < 0.0, -MOST_LOG_VAR, MOST_LOG_VAR)
    return tl.where(inside | (log_var != log_var), log_var, end), inside


@triton.jit
def inverse_deviation(bounded):
    """1 / sigma of a bounded log variance.

    The densities square the product with a difference, and not this, so that less overflows.
    """
    return tl.exp(-0.5 * bounded)


@triton.jit
def log_one_plus(e):
    """``log(1 + e)`` for ``0 <= e <= 1``, accurate to the last digits however small ``e`` is."""
    if e.dtype == tl.float64:
        # 2 atanh(s) with s = e / (2 + e).
        s = e / (e + 2.0)
        x = s * s
        p = x * 0.17009779345427742 + 0.083449596641070586
        p = p * x + 0.12104947499713463
        p = p * x + 0.13301121067442345
        p = p * x + 0.15386548414999429
        p = p * x + 0.18181744478101375
        p = p * x + 0.22222223953671616
        p = p * x + 0.2857142854811765
        p = p * x + 0.40000000000155117
        p = p * x + 0.66666666666666308
        result = (p * x + 2.0) * s
    else:
        p = e * 0.00523267248 - 0.0295051447
        p = p * e + 0.0782257877
        p = p * e - 0.13663231
        p = p * e + 0.191059995
        p = p * e - 0.248429803
        p = p * e + 0.333190966
        p = p * e - 0.499994931
        p = p * e + 0.99999997
        result = p * e
    return result


@triton.jit
def softplus_sigmoid(s):
    """``log(1 + exp(s))`` and its derivative from one exponential; finite for every finite ``s``."""
    e = tl.exp(-tl.abs(s))
    softplus = tl.maximum(s, 0.0) + log_one_plus(e)
    sigmoid = tl.where(s < 0, e, 1.0) / (e + 1.0)
    return softplus, sigmoid


@triton.jit
def softplus(s):
    """``softplus_sigmoid`` without the derivative; the compiler removes what only that needs."""
    value, _ = softplus_sigmoid(s)
    return value


@triton.jit
def tanh(x):
    """The hyperbolic tangent, accurate to the last digits near 0 too."""
    square = x * x
    if x.dtype == tl.float64:
        p = square * -1.6072581641171246e-05 + 7.714439437551245e-05
        p = p * square - 0.00022856423906362597
        p = p * square + 0.00058631655640127968
        p = p * square - 0.001454958883787983
        p = p * square + 0.0035919891751790551
        p = p * square - 0.0088632210028395768
        p = p * square + 0.02186948757611485
        p = p * square - 0.053968253931268861
        p = p * square + 0.13333333333262096
        p = p * square - 0.33333333333332854
    else:
        p = square * -0.005704998 + 0.0206390988
        p = p * square - 0.0537397193
        p = p * square + 0.133314423
        p = p * square - 0.333332819
    e = tl.exp(-2.0 * tl.abs(x))
    large = (1.0 - e) / (e + 1.0)
    return tl.where(tl.abs(x) < 0.625, p * square * x + x, tl.where(x < 0, -large, large))


@triton.jit
def sine_cosine_of_turns(u):
    """``sin(2 pi u)`` and ``cos(2 pi u)`` for ``0 <= u < 1``."""
    # The nearest quarter turn is taken off: exact, since the rest has no more bits than u.
    quarter = (u * 4.0 + 0.5).to(tl.int32)
    f = u - quarter.to(u.dtype) * 0.25
    square = f * f
    if u.dtype == tl.float64:
        p = square * 3.7807262312744174 - 15.093797508589912
        p = p * square + 42.058684902124085
        p = p * square - 76.705859703315781
        p = p * square + 81.605249275944516
        p = p * square - 41.341702240399634
        p = p * square + 6.2831853071795862
        s = p * f
        p = square * -1.6968347141936062 + 7.9030915890384748
        p = p * square - 26.426250927268697
        p = p * square + 60.24464132938531
        p = p * square - 85.456817206528285
        p = p * square + 64.939394022667983
        p = p * square - 19.739208802178716
    else:
        p = square * -75.3935629 + 81.5923536
        p = p * square - 41.3416615
        p = p * square + 6.28318529
        s = p * f
        p = square * 59.2292462 - 85.4432364
        p = p * square + 64.9393218
        p = p * square - 19.7392087
    c = p * square + 1.0
    odd = quarter % 2 == 1
    sine, cosine = tl.where(odd, c, s), tl.where(odd, s, c)
    return tl.where(quarter // 2 % 2 == 1, -sine, sine), tl.where((quarter + 1) // 2 % 2 == 1, -cosine, cosine)
