// Blocked prefill in eight-float vectors; all formats are decoded to floats first. See
// vector_math-inl.h.

namespace ikv::IKV_ATTENTION_NAMESPACE {

/// Rows of int8 are decoded by the caller, as kPrefillTable says.
inline void pack_keys(const float* rows, int count, int head_dim, float* packed) {
  const int groups = (count + 63) / 64 * 4;
  for (int group = 0; group < groups; ++group, packed += head_dim * 16) {
    for (int j = 0; j < 16; ++j) {
      const int key = group * 16 + j;
      if (key < count) {
        for (int d = 0; d < head_dim; ++d) packed[d * 16 + j] = rows[key * head_dim + d];
      } else {
        for (int d = 0; d < head_dim; ++d) packed[d * 16 + j] = 0.0f;
      }
    }
  }
}

/// Two vectors of each of three queries: with the operands they fill 16 registers twice over, so
/// that a tile of six is done in halves.
struct Half {
  F8 a0, a1, b0, b1, c0, c1;
};

IKV_INLINE void add_half(Half& s, F8 x0, F8 x1, F8 a, F8 b, F8 c) {
  s.a0 = mul_add(a, x0, s.a0);
  s.a1 = mul_add(a, x1, s.a1);
  s.b0 = mul_add(b, x0, s.b0);
  s.b1 = mul_add(b, x1, s.b1);
  s.c0 = mul_add(c, x0, s.c0);
  s.c1 = mul_add(c, x1, s.c1);
}

inline void tile_score(const TileQueries& q, const PackedSegment& segment, int head_dim,
                       TileWeights& w) {
  const F8 zero = set8(0.0f), scale = set8(q.scale);
  for (int key = 0; key < segment.count; key += 16) {
    const float* keys = segment.keys + static_cast<ptrdiff_t>(key) * head_dim;
    Half s{zero, zero, zero, zero, zero, zero}, t = s;
    for (int d = 0; d < head_dim; ++d) {
      const F8 k0 = load8(keys + d * 16), k1 = load8(keys + d * 16 + 8);
      add_half(s, k0, k1, set8(q.q[0][d]), set8(q.q[1][d]), set8(q.q[2][d]));
      add_half(t, k0, k1, set8(q.q[3][d]), set8(q.q[4][d]), set8(q.q[5][d]));
    }
    const F8 sums[12] = {s.a0, s.a1, s.b0, s.b1, s.c0, s.c1, t.a0, t.a1, t.b0, t.b1, t.c0, t.c1};
    for (int i = 0; i < kTileQueries; ++i) {
      store8(w.x[i] + key, sums[2 * i] * scale);
      store8(w.x[i] + key + 8, sums[2 * i + 1] * scale);
    }
  }
}

inline void tile_softmax(const PackedSegment& segment, const int* first, const int* last, float cap,
                         TileState& state, TileWeights& w) {
  const int padded = (segment.count + 15) / 16 * 16;
  for (int q = 0; q < kTileQueries; ++q) {
    float* x = w.x[q];
    for (int i = 0; i < padded; i += 8) store8(x + i, finish8(load8(x + i), cap));
    for (int i = 0; i < first[q]; ++i) x[i] = -__builtin_inff();
    for (int i = last[q]; i < padded; ++i) x[i] = -__builtin_inff();
    F8 most = set8(state.max[q]);
    for (int i = 0; i < padded; i += 8) most = max8(load8(x + i), most);
    const F8 shift = set8(max_lane(most));
    F8 total = set8(0.0f);
    for (int i = 0; i < padded; i += 8) {
      const F8 e = exp_negative(load8(x + i) - shift);
      store8(x + i, e);
      total += e;
    }
    state.rescale[q] = exp_negative(set8(state.max[q]) - shift)[0];
    state.sum[q] = state.sum[q] * state.rescale[q] + sum_lanes(total);
    state.max[q] = shift[0];
  }
}

inline void tile_values(const PackedSegment& segment, const TileWeights& w, const TileState& state,
                        int head_dim, float* const* out) {
  for (int d = 0; d < head_dim; d += 16) {
    F8 old[12];
    for (int i = 0; i < kTileQueries; ++i) {
      const F8 rescale = set8(state.rescale[i]);
      old[2 * i] = load8(out[i] + d) * rescale;
      old[2 * i + 1] = load8(out[i] + d + 8) * rescale;
    }
    Half s{old[0], old[1], old[2], old[3], old[4], old[5]};
    Half t{old[6], old[7], old[8], old[9], old[10], old[11]};
    const float* v = segment.values + d;
    for (int key = 0; key < segment.count; ++key, v += head_dim) {
      const F8 v0 = load8(v), v1 = load8(v + 8);
      add_half(s, v0, v1, set8(w.x[0][key]), set8(w.x[1][key]), set8(w.x[2][key]));
      add_half(t, v0, v1, set8(w.x[3][key]), set8(w.x[4][key]), set8(w.x[5][key]));
    }
    const F8 sums[12] = {s.a0, s.a1, s.b0, s.b1, s.c0, s.c1, t.a0, t.a1, t.b0, t.b1, t.c0, t.c1};
    for (int i = 0; i < kTileQueries; ++i) {
      store8(out[i] + d, sums[2 * i]);
      store8(out[i] + d + 8, sums[2 * i + 1]);
    }
  }
}

constexpr PrefillKernels kPrefillTable = {nullptr,    nullptr,      pack_keys,
                                          tile_score, tile_softmax, tile_values};

}  // namespace ikv::IKV_ATTENTION_NAMESPACE
