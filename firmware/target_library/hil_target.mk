# For a Makefile: include this, then compile HIL_TARGET_SOURCES with HIL_TARGET_CPPFLAGS, and the C++ of them with
# HIL_TARGET_CXXFLAGS too. The runtime is `builtin`, or HIL_RUNTIME = executorch, with HIL_EXECUTORCH_INCLUDES (the
# include folders of yours) and HIL_EXECUTORCH_VERSION. HIL_CHANNELS = 0 leaves HIL_INPUT and HIL_OUTPUT out.

HIL_TARGET_LIBRARY := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
HIL_TARGET_ROOT := $(HIL_TARGET_LIBRARY)/..
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
HIL_TARGET_SOURCES += $(wildcard $(hil_runtime)/executorch/*.cpp) \
	$(hil_runtime)/builtin/program_file.cpp
HIL_TARGET_CPPFLAGS += -DHIL_RUNTIME_EXECUTORCH=1 -DHIL_EXECUTORCH_VERSION='"$(HIL_EXECUTORCH_VERSION)"' \
	-DC10_USING_CUSTOM_GENERATED_MACROS $(addprefix -isystem ,$(HIL_EXECUTORCH_INCLUDES))
endif
