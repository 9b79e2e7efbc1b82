# For a Makefile: include this, then compile HIL_TARGET_SOURCES with HIL_TARGET_CPPFLAGS, and the C++ of them with
# HIL_TARGET_CXXFLAGS too, and link HIL_TARGET_LIBS. The runtime is `builtin`, or HIL_RUNTIME = executorch, with either
# - HIL_EXECUTORCH_PREFIX, which `hil executorch install` made for your CPU: with the operators that runners have; or
# - HIL_EXECUTORCH_INCLUDES (the include folders of yours) and HIL_EXECUTORCH_VERSION: with those that you link.
# HIL_CHANNELS = 0 leaves HIL_INPUT and HIL_OUTPUT out.

HIL_TARGET_LIBRARY := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
HIL_TARGET_ROOT := $(patsubst %/,%,$(dir $(HIL_TARGET_LIBRARY)))
HIL_RUNTIME ?= builtin
HIL_CHANNELS ?= 1

hil_runtime := $(HIL_TARGET_ROOT)/runtime
HIL_TARGET_SOURCES := $(wildcard $(HIL_TARGET_LIBRARY)/*.c) $(wildcard $(hil_runtime)/*.cpp)
HIL_TARGET_CPPFLAGS := -I$(HIL_TARGET_ROOT) -I$(HIL_TARGET_LIBRARY) -isystem $(HIL_TARGET_ROOT)/generated \
	-DHIL_CHANNELS=$(HIL_CHANNELS)
# The bits of floats must not depend on what a compiler fuses.
HIL_TARGET_CXXFLAGS := -std=c++17 -fno-exceptions -fno-rtti -fno-threadsafe-statics -ffp-contract=off

ifeq ($(HIL_RUNTIME),builtin)
HIL_TARGET_SOURCES += $(wildcard $(hil_runtime)/builtin/*.cpp $(hil_runtime)/builtin/kernels/*.cpp)
HIL_TARGET_CPPFLAGS += -DHIL_PORTABLE=1
else
HIL_TARGET_SOURCES += $(addprefix $(hil_runtime)/,executorch/memory.cpp executorch/pal.cpp executorch/plan.cpp \
	executorch/runtime.cpp builtin/program_file.cpp)
ifneq ($(HIL_EXECUTORCH_PREFIX),)
ifeq ($(wildcard $(HIL_EXECUTORCH_PREFIX)/lib/libexecutorch_core.a),)
$(error HIL_EXECUTORCH_PREFIX=$(HIL_EXECUTORCH_PREFIX): no libexecutorch_core.a in its lib)
endif
HIL_EXECUTORCH_INCLUDES := $(addprefix $(HIL_EXECUTORCH_PREFIX)/include,/ /executorch/runtime/core/portable_type/c10)
HIL_EXECUTORCH_VERSION := $(shell sed -n 's/^ *"version": "\(.*\)",$$/\1/p' $(HIL_EXECUTORCH_PREFIX)/hil.json)
# A vsnprintf() for its log, as newlib's small one knows no %zu, and needs a heap.
HIL_TARGET_SOURCES += $(addprefix $(hil_runtime)/executorch/,portable_operators.cpp printf.cpp)
HIL_TARGET_CPPFLAGS += -DHIL_PORTABLE=1
hil_archives = $(wildcard $(patsubst %,$(HIL_EXECUTORCH_PREFIX)/lib/lib%.a,$(1)))
# Whole, where operators register themselves.
HIL_TARGET_LIBS := -Wl,--whole-archive $(call hil_archives,cortex_m_ops_lib executorch) -Wl,--no-whole-archive \
	-Wl,--start-group $(call hil_archives,$(shell cat $(hil_runtime)/executorch/archives.txt)) -Wl,--end-group
endif
HIL_TARGET_CPPFLAGS += -DHIL_RUNTIME_EXECUTORCH=1 -DHIL_EXECUTORCH_VERSION='"$(HIL_EXECUTORCH_VERSION)"' \
	-DC10_USING_CUSTOM_GENERATED_MACROS $(addprefix -isystem ,$(HIL_EXECUTORCH_INCLUDES))
# ExecuTorch marks Method::step() as experimental by declaring it deprecated.
HIL_TARGET_CXXFLAGS += -Wno-deprecated-declarations -Wno-psabi
endif
