"""Programs for `hil launch`, without a C library: they print by semihosting, or by a UART."""

from __future__ import annotations

import subprocess
from pathlib import Path

# Semihosting by hand: what newlib and Zephyr do is the same two instructions.
HEAD = r"""
static int call(int number, const void* argument) {
  register int r0 __asm__("r0") = number;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}
static void say(const char* text) { call(4, text); }
static void end(int status) { int block[2] = {0x20026, status}; call(0x20, block); }
static void put(const char* text) {  /* the first UART of an MPS2 */
  volatile int* uart = (volatile int*)0x40004000;
  uart[4] = 16, uart[2] = 1;
  for (; *text; ++text) { while (uart[1] & 1) {} uart[0] = *text; }
}
void work(void);
void start(void) { work(); end(0); for (;;) {} }
void fault(void) { say("HardFault at last\n"); FAULT; }
__attribute__((section(".vectors"), used)) void* const vectors[16] = {
  (void*)STACK, (void*)start, (void*)fault, (void*)fault};
"""
SCRIPT = """
ENTRY(start)
SECTIONS {{
  . = {code};
  .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) }}
  . = {data};
  .data : {{ *(.data*) }}
  .bss : {{ *(.bss*) }}
}}
"""


def small_program(
    folder: Path, work: str, *flags: str, cpu: str = "cortex-m3", fault: str = "end(1)", stack: str = "0x20010000",
    code: str = "0", data: str = "0x20000000", name: str = "program.elf",
) -> Path:  # fmt: skip
    """Build and return the ELF of a function `work`."""
    (folder / "program.c").write_text(f"{HEAD}\n{work}\n")
    (folder / "program.ld").write_text(SCRIPT.format(code=code, data=data))
    options = [f"-mcpu={cpu}", "-mthumb", "-O1", "-ffreestanding", "-nostdlib", "-Wl,--build-id=none"]
    options += [f"-DFAULT={fault}", f"-DSTACK={stack}", *flags]
    files = ["-T", str(folder / "program.ld"), str(folder / "program.c"), "-o", str(folder / name)]
    subprocess.run(["arm-none-eabi-gcc", *options, *files], check=True, timeout=60)
    return folder / name
