# How kernels are compiled that count the lines and branches they execute, for runner/coverage.cpp: not optimised, so that
# lines stay apart. GCC 11 or newer.
set(hil_counting -O0 -fprofile-arcs -ftest-coverage -fprofile-info-section=hil_counted)
