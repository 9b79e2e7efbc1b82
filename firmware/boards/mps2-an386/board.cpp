#include "platform/mps2_board.h"
