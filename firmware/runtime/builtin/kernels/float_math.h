// Functions of C's libm, of floats. C libraries differ in the last bit, and targets must not: so
// these are plain arithmetic in double, of a fixed order. Each is within 0.51 units in the last
// place of the true value: their doubles are right to 1e-13, and rounding one to float is 0.5. NaN
// stays.
#pragma once

namespace hil::builtin::math {

float exp(float x);
float expm1(float x);
float log(float x);
float log1p(float x);
float tanh(float x);
float sin(float x);
float cos(float x);
float pow(float base, float exponent);

// In double. erf is right to 1e-14, which is nothing beside a float's rounding.
double erf(double x);
double tanh_of(double x);

}  // namespace hil::builtin::math
