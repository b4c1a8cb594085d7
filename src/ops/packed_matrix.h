// PackedMatrix: one weight matrix in the layout that the kernels read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "gguf/types.h"
#include "ops/packed_format.h"

namespace ikv {

/// Immutable once packed, cheap to copy (copies share the memory), the same on every instruction
/// set. Every weight keeps its value, and memory is about the file's; bits a weight, the file's in
/// brackets: Q8_0 8.5 (8.5), Q4_0 4.5 (4.5), Q4_1 5 (5), Q5_0 5.5 (5.5), Q5_1 6 (6), Q2_K 3.13
/// (2.63), Q3_K 3.56 (3.44), Q4_K 4.63 (4.5), Q5_K 5.63 (5.5), Q6_K 6.56 (6.56); floats keep their
/// type. Outputs are padded to a multiple of 32.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  /// Memory that pack() needs; 0 if the sizes overflow.
  static size_t packed_bytes(WeightType type, size_t num_outputs, size_t num_inputs);

  /// Packs `data`, the rows (one an output) of a GGUF tensor, into `memory` from byte `offset` (a
  /// multiple of 64) on, where packed_bytes() are free; many matrices may share one buffer, so that
  /// it can lie on huge pages. `num_inputs` is a multiple of the type's block. Thread-safe for
  /// different offsets.
  static PackedMatrix pack(WeightType type, const std::byte* data, size_t num_outputs,
                           size_t num_inputs, std::shared_ptr<AlignedBuffer> memory, size_t offset);

  /// The same with memory of its own. Errors: kOutOfMemory.
  static Result<PackedMatrix> pack(WeightType type, const std::byte* data, size_t num_outputs,
                                   size_t num_inputs);

  size_t num_outputs() const { return num_outputs_; }
  size_t num_inputs() const { return num_inputs_; }
  const PackedFormat& format() const { return format_; }
  uint64_t size_bytes() const { return num_panels() * panel_bytes(); }

  /// Row `index` as floats, [num_inputs].
  void unpack_row(size_t index, float* out) const;

  // For kernels.
  size_t num_panels() const { return (num_outputs_ + kPanelOutputs - 1) / kPanelOutputs; }
  size_t num_chunks() const { return num_inputs_ / format_.chunk_inputs; }
  size_t panel_bytes() const { return num_chunks() / format_.run_chunks * format_.run_bytes(); }
  const std::byte* panel(size_t index) const { return data_ + index * panel_bytes(); }

 private:
  PackedFormat format_;
  size_t num_outputs_ = 0;
  size_t num_inputs_ = 0;
  const std::byte* data_ = nullptr;
  std::shared_ptr<const AlignedBuffer> memory_;
};

}  // namespace ikv
