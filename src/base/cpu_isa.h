// Which instruction set the kernels run on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ikv {

/// Sets of instructions that kernels are written for, each containing the ones before it.
/// kAvx2: AVX2, FMA and F16C. kAvx512Vnni: AVX-512 F, BW, DQ, VL and VNNI.
enum class CpuIsa : uint8_t { kScalar, kAvx2, kAvx512Vnni };

/// Ascending.
std::span<const CpuIsa> all_cpu_isas();

/// "scalar", "avx2", "avx512vnni".
std::string_view cpu_isa_name(CpuIsa isa);

/// The best that this machine and its operating system can run.
CpuIsa detected_cpu_isa();

/// What kernels shall use: the detected one, or a lower one named by the environment variable
/// IKV_ISA, read at the first call, which then binds Highway's kernels too. A value that is unknown
/// or more than the machine can run is ignored with a warning that names the choices. Where a test
/// limits Highway's targets, this obeys. Thread-safe, costs a call.
CpuIsa cpu_isa();

/// Makes cpu_isa() return `isa`, which the machine must be able to run; nullopt ends it. For tests
/// and benchmarks, between calls of kernels only.
void force_cpu_isa(std::optional<CpuIsa> isa);

}  // namespace ikv
