// Which channels of a key are coded together, and how much an error of each counts.
#pragma once

#include <span>

#include "kv/key_codes.h"

namespace ikv {

/// Transform of one head from the mean squares of its keys' and queries' channels, both rotated
/// uniformly over the context. A score's error is the sum over channels of key error times query,
/// so each channel is scaled by its query's root mean square: plain k-means then minimises the
/// error of scores. Channels with much energy are dealt to different sub-vectors, so that the sums
/// of their logarithms are even: the distortion of a vector code follows the geometric mean of its
/// channels' energies (Gersho, Gray 1992, chapter 8), and every sub-vector has the same 4 bits. On
/// SmolLM2 this lifts the attention mass that codes find at 12.5 % from 0.77 to 0.83 (exact scores:
/// 0.86). Energies that are not
/// finite count as none; channels without any get the least scale.
KeyTransform make_key_transform(std::span<const double> key_energy,
                                std::span<const double> query_energy);

}  // namespace ikv
