// A Raspberry Pi Pico with its UART0 on standard input and output: `node pico.cjs RP2040JS FLASH.bin`.
//
// rp2040js computes. What is added here is what it leaves out: the boot ROM's part of a start, faults, which it logs or
// does not notice, and a WFI that sleeps. It has no MPU, and its UART no time of its own: bytes wait until there is room.
"use strict";

const fs = require("fs");
const { RP2040 } = require(process.argv[2]);

const ROM_END = 0x4000;
const FLASH = 0x10000000, FLASH_END = 0x14000000; // four views of it
const RAM = 0x20000000;
const BOOT2 = 0x20041f00; // where the boot ROM puts the second stage
const BOOT2_SIZE = 256;
const NMI = 2, HARD_FAULT = 3;
const SP = 13, PC = 15;
const MPU_TYPE = 0xd90; // in the private peripheral bus
const ROUND = 20000; // instructions between two looks at standard input
const FEED = 64; // instructions between two looks at the UART's FIFO

const chip = new RP2040();
const core = chip.core;
const uart = chip.uart[0];

// --- faults: all of an ARMv6-M's are HardFaults ---

const FAULT = Symbol("fault");
let ignored = false; // a stack that cannot be written does not keep the handler from starting

function fault() {
  if (!ignored) throw FAULT;
}

// It warns of addresses where nothing is and of instructions that it does not know; other warnings, of registers that
// it lacks, come from peripherals. Its break is UDF's and BKPT's, which without a debugger is a fault too.
const complain = (who) => who === "RP2040" || who === "CortexM0Core" ? fault() : undefined;
chip.logger = { debug() {}, info() {}, warn: complain, error: complain };
chip.onBreak = fault;

const bus = Object.getPrototypeOf(core);
bus.readUint16 = (address) => (address & 1 ? fault() : chip.readUint16(address));
bus.readUint32 = (address) => (address & 3 ? fault() : chip.readUint32(address));
bus.writeUint8 = (address, value) => isRom(address) || chip.writeUint8(address, value);
bus.writeUint16 = (address, value) => (address & 1 ? fault() : isRom(address) || chip.writeUint16(address, value));
bus.writeUint32 = (address, value) => (address & 3 ? fault() : isRom(address) || chip.writeUint32(address, value));

// The boot ROM and the flash, which rp2040js lets a program overwrite.
function isRom(address) {
  return address >>> 0 < ROM_END || (address >= FLASH && address < FLASH_END);
}

const readRegister = chip.ppb.readUint32;
chip.ppb.readUint32 = (offset) => (offset === MPU_TYPE ? 0 : readRegister.call(chip.ppb, offset));

function enterHardFault(pc, sp) {
  if (core.IPSR === HARD_FAULT || core.IPSR === NMI) {
    console.error(`Lockup: a fault at 0x${pc.toString(16)} while one is handled`);
    return false;
  }
  core.registers[PC] = pc;
  core.registers[SP] = sp;
  ignored = true;
  core.exceptionEntry(HARD_FAULT);
  ignored = false;
  return true;
}

// --- bytes ---

let received = [];
let taken = 0; // of them
let said = [];
uart.onByte = (byte) => said.push(byte);

function feed() {
  while (taken < received.length && !uart.rxFIFO.full) uart.feedByte(received[taken++]);
  if (taken === received.length) received = [];
  if (received.length === 0) taken = 0;
}

function flush() {
  if (said.length) fs.writeSync(1, Buffer.from(said));
  said = [];
}

// --- time ---

let asleep = null; // since when, and the timer that ends it

function sleep() {
  flush();
  const timer = setTimeout(wake, Math.max(1, chip.clock.nanosToNextAlarm / 1e6));
  asleep = { since: process.hrtime.bigint(), timer };
}

function wake() {
  if (asleep === null) return;
  clearTimeout(asleep.timer);
  const nanos = Number(process.hrtime.bigint() - asleep.since);
  asleep = null;
  chip.clock.tick(nanos);
  round();
}

// Whether there is something to do, or will be without waiting.
function isAwake() {
  if (core.waiting && received.length) feed();
  if (core.waiting && core.interruptsUpdated && core.checkForInterrupts()) core.waiting = false;
  return !core.waiting;
}

function round() {
  for (let n = 0; n < ROUND; ++n) {
    if (n % FEED === 0 && received.length) feed();
    if (core.waiting && !isAwake()) return sleep();
    const pc = core.registers[PC];
    const sp = core.registers[SP];
    try {
      chip.clock.tick((core.executeInstruction() * 1e9) / chip.clkSys);
    } catch (error) {
      if (error !== FAULT) throw error;
      if (!enterHardFault(pc, sp)) return flush();
    }
  }
  flush();
  setImmediate(round);
}

// --- the start, as the boot ROM makes it (RP2040 datasheet, 2.8.1) ---

function crc32(data) {
  let crc = 0xffffffff;
  for (const byte of data) {
    crc ^= byte << 24;
    for (let bit = 0; bit < 8; ++bit) crc = (crc << 1) ^ (crc < 0 ? 0x04c11db7 : 0);
  }
  return crc >>> 0;
}

function start(flash) {
  chip.flash.set(flash);
  const boot2 = flash.subarray(0, BOOT2_SIZE);
  if (crc32(boot2.subarray(0, -4)) !== boot2.readUInt32LE(BOOT2_SIZE - 4)) {
    console.error("no second stage in flash: the boot ROM waits for a program on USB");
    return;
  }
  chip.sram.set(boot2, BOOT2 - RAM);
  core.SP = BOOT2;
  core.PC = BOOT2;
  setImmediate(round);
}

process.stdin.on("data", (data) => {
  for (const byte of data) received.push(byte);
  wake();
});
process.stdin.on("end", () => process.exit(0));
start(fs.readFileSync(process.argv[3]));
