#include "pipeline.h"

#include "hil_channels.h"

static const int8_t weights[CLASSES][FEATURES] = {
#include "weights.inc"
};

// The loudness of each part of the frame: how many bits its mean magnitude has, in eighths.
static void compute_features(const int16_t samples[FRAME], int8_t features[FEATURES]) {
  enum { PART = FRAME / FEATURES };
  for (int f = 0; f < FEATURES; ++f) {
    uint32_t sum = 0;
    for (int i = 0; i < PART; ++i) {
      const int32_t sample = samples[f * PART + i];
      sum += (uint32_t)(sample < 0 ? -sample : sample);
    }
    const uint32_t mean = sum / PART;
    int bits = 0;
    while (mean >> bits > 1) ++bits;
    const uint32_t fraction = mean == 0 ? 0 : (mean * 8u >> bits) - 8u;
    features[f] = (int8_t)(bits * 8 + (int)fraction);
  }
}

static int32_t rounded_shift(int32_t value, int shift) {
  return (value + (1 << (shift - 1))) >> shift;
}

static void run_model(const int8_t features[FEATURES], int8_t scores[CLASSES]) {
  for (int c = 0; c < CLASSES; ++c) {
    int32_t sum = 0;
    for (int f = 0; f < FEATURES; ++f) sum += weights[c][f] * features[f];
    const int32_t score = rounded_shift(sum, 7);
    scores[c] = (int8_t)(score > 127 ? 127 : score < -128 ? -128 : score);
  }
}

static uint8_t smooth(const int8_t scores[CLASSES]) {
  static int8_t last[SMOOTHED][CLASSES];
  static unsigned next;
  for (int c = 0; c < CLASSES; ++c) last[next][c] = scores[c];
  next = (next + 1) % SMOOTHED;
  int32_t best = INT32_MIN;
  uint8_t decision = 0;
  for (int c = 0; c < CLASSES; ++c) {
    int32_t sum = 0;
    for (int i = 0; i < SMOOTHED; ++i) sum += last[i][c];
    if (sum > best) {
      best = sum;
      decision = (uint8_t)c;
    }
  }
  return decision;
}

uint8_t listen(int16_t samples[FRAME]) {
  int8_t features[FEATURES];
  int8_t scores[CLASSES];
  HIL_INPUT(mic_frame, samples, FRAME * sizeof samples[0]);
  compute_features(samples, features);
  HIL_OUTPUT(features, features, sizeof features);
  run_model(features, scores);
  HIL_OUTPUT(scores, scores, sizeof scores);
  const uint8_t decision = smooth(scores);
  HIL_OUTPUT(decision, &decision, sizeof decision);
  return decision;
}
