// What the product does with a frame of sound: features, a model, and a decision that is smoothed.
#ifndef PIPELINE_H
#define PIPELINE_H

#include <stdint.h>

enum { FRAME = 256, FEATURES = 16, CLASSES = 4, SMOOTHED = 4 };

// From the microphone's samples to the class that was heard most in the last frames.
uint8_t listen(int16_t samples[FRAME]);

#endif
