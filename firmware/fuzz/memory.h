// The sizes of the pools that runner/pools.cpp has in fuzz_frames, in place of a board's.
#define HIL_PROGRAM_POOL 0x10000u
#define HIL_METHOD_POOL 0x10000u
#define HIL_TEMP_POOL 0u
#define HIL_SHARED_POOL 0u
#define HIL_RESIDENT_ADDRESS 0u
#define HIL_RESIDENT_SIZE 0u
#define HIL_FIRST_BANK 0x10000u
#define HIL_FIRST_BANK_NAME "host"
#define HIL_UNPLANNED_BANK 0
#define HIL_FURTHER_BANKS(BANK)
