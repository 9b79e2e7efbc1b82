// Compiled while configuring: see CMakeLists.txt.
#include "runtime/executorch/method_access.h"

int main() { return 0; }
