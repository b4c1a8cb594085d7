// How packed weights lie in memory; the contract between packing and kernels.
//
// A matrix is cut into panels of 32 outputs, stored one after the other, so that a thread reads one
// ascending stream. A panel is a list of chunks along the inputs. Missing outputs of the last panel
// have scale and minimum 0.
//
// Quantised: a chunk has 32 inputs. Weight = scale * code + minimum for each output and group of 16
// or 32 inputs, codes unsigned. The 1024 codes stand in sixteen vectors of 64 bytes: vector
// 2 * s + c holds the inputs 4 s .. 4 s + 3 of the outputs 16 c .. 16 c + 15, the four inputs of an
// output side by side, as 8-bit dot instructions want them. In memory a code's bits are split over
// planes, each a list of vectors too:
//   8 bits:  16 vectors as they are
//   4 bits:  8 vectors; the low nibbles of j are vector 2 j, the high ones vector 2 j + 1
//   2 bits:  4 vectors; bits 2 i, 2 i + 1 of j are vector 4 j + i
//   1 bit:   2 vectors; bit i of j is vector 8 j + i
// Planes stand from the lowest bits up (3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2 bits). Behind them follow
// the scales, [group][32], and, where the format has them, the minima likewise. Without stored
// minima the minimum is -offset * scale, which is exact: offsets are powers of two.
//
// Scales and minima are halves; those of the K formats are signed bytes, to be multiplied by the
// halves [32] and [32] of a header that stands before each eight chunks. So every weight keeps the
// value that it has in the file.
//
// Floats: a chunk is one input of 32 outputs, in the file's format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gguf/types.h"

namespace ikv {

inline constexpr size_t kPanelOutputs = 32;
inline constexpr size_t kChunkInputs = 32;
inline constexpr size_t kChunkCodes = kPanelOutputs * kChunkInputs;

/// Where the code of an output's input stands among a chunk's 1024.
constexpr size_t code_place(size_t output, size_t input) {
  return (input / 4 * kPanelOutputs + output) * 4 + input % 4;
}

struct PackedFormat {
  WeightType type = WeightType::kF32;
  int bits = 0;             ///< of a code; 0: floats
  size_t group_inputs = 0;  ///< 16 or 32
  bool has_min = false;     ///< minima are stored
  bool two_level = false;   ///< scales are bytes, with a header for each run of chunks
  float offset = 0.0f;      ///< of the codes, where minima are not stored
  size_t chunk_inputs = 1;  ///< 32, or 1 for floats
  size_t plane_bytes = 0;   ///< of a chunk's codes; the scales start there
  size_t chunk_bytes = 0;   ///< of one panel
  size_t header_bytes = 0;  ///< before each run of chunks; 0 without headers
  size_t run_chunks = 1;    ///< behind each header

  bool quantised() const { return bits != 0; }
  size_t groups_a_chunk() const { return kChunkInputs / group_inputs; }
  size_t run_bytes() const { return header_bytes + run_chunks * chunk_bytes; }

  /// Where chunk `index` and its header stand in a panel.
  size_t header_at(size_t index) const { return index / run_chunks * run_bytes(); }
  size_t chunk_at(size_t index) const {
    return header_at(index) + header_bytes + index % run_chunks * chunk_bytes;
  }
};

/// The layout of a weight type.
PackedFormat packed_format(WeightType type);

}  // namespace ikv
