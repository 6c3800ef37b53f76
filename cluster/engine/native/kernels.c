/* Forward pass of the Llama family on CPU: packed ragged rows over a paged KV cache.
 *
 * Weights are stored as bf16 (or f32) and widened in registers; activations and sums are f32. So a step streams half the
 * bytes of an f32 model but computes with f32 precision.
 *
 * Invariance: every row's value is a fixed sequence of operations that depends on nothing but that row, its sequence's KV
 * and the weights. Row tiles, thread count and chunking only decide who computes a row and when. FP contraction is off and
 * every fused multiply-add is written out, so the compiler cannot change the order either.
 *
 * Compiled to LLVM IR by `make kernels` and JIT-compiled for the host by `jit.py`; structs mirror `structs.py`.
 */
#include <stdint.h>

#pragma STDC FP_CONTRACT OFF

#define LANES 16
#define PANEL 32   /* output columns of a weight panel; tokens of a KV tile; head dimensions of a value chunk */
#define MAX_HEAD_DIM 256
#define MAX_TILE 12 /* rows of a GEMM tile: 2 * 12 accumulators, 2 weights and a broadcast fit 32 registers */
#define PHASES 8
#define PREFETCH_BYTES 16384 /* hides memory latency behind the arithmetic of a tile; found by trial */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")

typedef float f32v __attribute__((vector_size(64), aligned(4)));
typedef uint32_t u32v __attribute__((vector_size(64), aligned(4)));
typedef int32_t i32v __attribute__((vector_size(64), aligned(4)));

extern int usleep(unsigned microseconds);
extern int sched_yield(void);

typedef struct {
  const float *input_norm, *post_norm; /* [hidden] */
  const float *q_norm, *k_norm;        /* [head_dim] or NULL */
  const float *qkv_bias;               /* [qkv padded] or NULL */
  const void *qkv, *o, *gate_up, *down; /* packed panels */
  void *k_cache; /* [block][kv_head][tile][head_dim][PANEL tokens] */
  void *v_cache; /* [block][kv_head][token][head_dim] */
} Layer;

typedef struct {
  int32_t num_layers, hidden, num_heads, num_kv_heads, head_dim, intermediate, vocab;
  int32_t weight_is_bf16, kv_is_bf16, block_size, window; /* window 0: attend to everything */
  int32_t qkv_stride; /* columns of the qkv buffer: (heads + 2 kv_heads) * head_dim rounded up to PANEL */
  float norm_eps, attention_scale;
  const void *embedding; /* [vocab][hidden], row-major, weight type */
  const float *final_norm;
  const void *lm_head; /* packed panels */
  const float *rope_cos, *rope_sin; /* [max_model_len][head_dim / 2] */
  const Layer *layers;
} Model;

typedef struct {
  int32_t num_rows, num_logit_rows, max_blocks, num_threads;
  const int32_t *token_ids, *positions, *slots, *row_sequences, *block_tables, *logit_rows;
  float *hidden, *normed, *qkv, *attended, *activated; /* [num_rows][...] */
  float *logits;                                       /* [num_logit_rows][vocab padded to PANEL] */
  int32_t *counters; /* [num_layers * PHASES + PHASES], zero at the start: next chunk of each phase */
  int32_t *barrier;  /* [2]: arrived threads, generation */
  const int32_t *rotary_positions; /* [num_rows]: what rows are rotated by; `positions` count the entries of the KV cache */
  const int32_t *feature_layers;   /* [num_features], rising: layers whose input is kept; num_layers is the last one's output */
  float *features;                 /* [num_rows][num_features][hidden] */
  int32_t num_features;
  const int32_t *row_parents; /* [num_rows] or NULL: the row before a node of a draft tree; negative for other rows */
} Batch;

/* An EAGLE-3 head: a model of one layer whose attention reads [embedding, hidden state] side by side. */
typedef struct {
  const void *fc;           /* packed panels: feature_size to hidden */
  const float *hidden_norm; /* [hidden] */
  int32_t feature_size, normed_residual;
} Head;

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* Waits until all threads of the batch arrive. Yields after a while so that a busy machine still makes progress. */
static void barrier_wait(const Batch *batch) {
  if (batch->num_threads == 1) return;
  int32_t generation = __atomic_load_n(&batch->barrier[1], __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&batch->barrier[0], 1, __ATOMIC_ACQ_REL) == batch->num_threads) {
    __atomic_store_n(&batch->barrier[0], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&batch->barrier[1], generation + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int64_t spins = 0; __atomic_load_n(&batch->barrier[1], __ATOMIC_ACQUIRE) == generation; spins++)
    if (spins > 20000) sched_yield();
}

INLINE int32_t next_chunk(const Batch *batch, int phase) {
  return __atomic_fetch_add(&batch->counters[phase], 1, __ATOMIC_RELAXED);
}

INLINE int32_t min32(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- vectors ---------------------------------------------------------------------------------------------------- */

INLINE f32v splat(float x) { return (f32v){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
INLINE f32v load(const float *p) { return *(const f32v *)p; }
INLINE void store(float *p, f32v x) { *(f32v *)p = x; }
INLINE f32v fma16(f32v a, f32v b, f32v c) { return __builtin_elementwise_fma(a, b, c); }

/* Columns 0..15 sit in the low halves, 16..31 in the high halves of sixteen 32-bit words: one shift, one mask. */
INLINE void load_panel_row(const void *panel, int64_t row, int is_bf16, f32v *low, f32v *high) {
  if (is_bf16) {
    u32v pairs = *(const u32v *)((const uint32_t *)panel + row * LANES);
    *low = (f32v)(pairs << 16);
    *high = (f32v)(pairs & 0xffff0000u);
  } else {
    const float *values = (const float *)panel + row * PANEL;
    *low = load(values);
    *high = load(values + LANES);
  }
}

INLINE uint16_t to_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Horizontal sum in a fixed order: halves, quarters, eighths, pairs. */
INLINE float sum16(f32v x) {
  x += __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3);
  x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1);
  return x[0] + x[1];
}

/* exp to about 1 ulp for x in [-87, 88] (Cody-Waite reduction, degree-6 polynomial); below that 0-ish, never NaN. */
INLINE f32v exp16(f32v x) {
  x = __builtin_elementwise_max(__builtin_elementwise_min(x, splat(88.0f)), splat(-87.0f));
  f32v n = __builtin_elementwise_roundeven(x * splat(1.44269504088896341f));
  f32v r = fma16(n, splat(-0.693359375f), x);
  r = fma16(n, splat(2.12194440e-4f), r);
  f32v p = splat(1.9875691500e-4f);
  p = fma16(p, r, splat(1.3981999507e-3f));
  p = fma16(p, r, splat(8.3334519073e-3f));
  p = fma16(p, r, splat(4.1665795894e-2f));
  p = fma16(p, r, splat(1.6666665459e-1f));
  p = fma16(p, r, splat(5.0000001201e-1f));
  p = fma16(p, r * r, r + splat(1.0f));
  i32v exponent = (__builtin_convertvector(n, i32v) + 127) << 23;
  return p * (f32v)exponent;
}

/* ---- row operations --------------------------------------------------------------------------------------------- */

static void embed_row(const Model *model, int32_t token, float *out) {
  int64_t start = (int64_t)token * model->hidden;
  if (!model->weight_is_bf16) {
    for (int i = 0; i < model->hidden; i++) out[i] = ((const float *)model->embedding)[start + i];
    return;
  }
  for (int i = 0; i < model->hidden; i++) {
    uint32_t bits = (uint32_t)((const uint16_t *)model->embedding)[start + i] << 16;
    __builtin_memcpy(&out[i], &bits, 4);
  }
}

/* out = x / rms(x) * weight over `size` (a multiple of LANES) elements. */
static void rms_norm(const float *x, const float *weight, float eps, int size, float *out) {
  f32v squares = splat(0.0f);
  for (int i = 0; i < size; i += LANES) squares = fma16(load(x + i), load(x + i), squares);
  float scale = 1.0f / __builtin_sqrtf(sum16(squares) / (float)size + eps);
  for (int i = 0; i < size; i += LANES) store(out + i, load(x + i) * splat(scale) * load(weight + i));
}

/* Rotates one head in place; halves (i, i + head_dim / 2) form the pairs, as in the Llama checkpoints. */
static void rope_head(float *head, const float *cosine, const float *sine, int half) {
  for (int i = 0; i < half; i += LANES) {
    f32v a = load(head + i), b = load(head + half + i), c = load(cosine + i), s = load(sine + i);
    store(head + i, a * c - b * s);
    store(head + half + i, b * c + a * s);
  }
}

/* Where one head of a token lies in the caches, in elements: a column of keys, PANEL apart, and a row of values. */
typedef struct {
  int64_t keys, values;
} Place;

/* Column of a token in a tile of keys. */
INLINE int key_column(const Model *model, int column) {
  if (!model->kv_is_bf16) return column;
  return column < LANES ? 2 * column : 2 * (column - LANES) + 1;
}

INLINE Place place_of(const Model *model, int32_t slot, int kv_head) {
  int block_size = model->block_size, dim = model->head_dim, offset = slot % block_size;
  int64_t base = ((int64_t)(slot / block_size) * model->num_kv_heads + kv_head) * block_size * dim;
  int64_t tile = base + (int64_t)(offset / PANEL) * dim * PANEL;
  return (Place){tile + key_column(model, offset % PANEL), base + (int64_t)offset * dim};
}

static void write_kv(const Model *model, const Layer *layer, int32_t slot, int kv_head, const float *k, const float *v) {
  int dim = model->head_dim;
  Place to = place_of(model, slot, kv_head);
  if (!model->kv_is_bf16) {
    for (int d = 0; d < dim; d++) ((float *)layer->k_cache)[to.keys + d * PANEL] = k[d];
    for (int d = 0; d < dim; d++) ((float *)layer->v_cache)[to.values + d] = v[d];
    return;
  }
  uint16_t *k_row = (uint16_t *)layer->k_cache + to.keys, *v_row = (uint16_t *)layer->v_cache + to.values;
  for (int d = 0; d < dim; d++) k_row[d * PANEL] = to_bf16(k[d]);
  for (int d = 0; d < dim; d++) {
    int within = d % PANEL;
    v_row[d - within + (within < LANES ? 2 * within : 2 * (within - LANES) + 1)] = to_bf16(v[d]);
  }
}

/* Copies one head of a token from the caches to `keys` and `values`, which are laid out alike. */
static void copy_kv(const Model *model, const Layer *layer, Place from, void *keys, void *values, Place to) {
  int dim = model->head_dim;
  if (model->kv_is_bf16) {
    for (int d = 0; d < dim; d++)
      ((uint16_t *)keys)[to.keys + d * PANEL] = ((const uint16_t *)layer->k_cache)[from.keys + d * PANEL];
    __builtin_memcpy((uint16_t *)values + to.values, (const uint16_t *)layer->v_cache + from.values, dim * 2);
  } else {
    for (int d = 0; d < dim; d++)
      ((float *)keys)[to.keys + d * PANEL] = ((const float *)layer->k_cache)[from.keys + d * PANEL];
    __builtin_memcpy((float *)values + to.values, (const float *)layer->v_cache + from.values, dim * 4);
  }
}

/* Per-head norm (if any), rotation of queries and keys, and the KV write of one row. */
static void position_row(const Model *model, const Layer *layer, const Batch *batch, int row) {
  int dim = model->head_dim, half = dim / 2, heads = model->num_heads, kv_heads = model->num_kv_heads;
  float *qkv = batch->qkv + (int64_t)row * model->qkv_stride;
  const float *cosine = model->rope_cos + (int64_t)batch->rotary_positions[row] * half;
  const float *sine = model->rope_sin + (int64_t)batch->rotary_positions[row] * half;
  for (int head = 0; head < heads + kv_heads; head++) {
    float *x = qkv + head * dim;
    const float *norm = head < heads ? layer->q_norm : layer->k_norm;
    if (norm) rms_norm(x, norm, model->norm_eps, dim, x);
    rope_head(x, cosine, sine, half);
  }
  const float *k = qkv + heads * dim, *v = k + kv_heads * dim;
  for (int head = 0; head < kv_heads; head++)
    write_kv(model, layer, batch->slots[row], head, k + head * dim, v + head * dim);
}

/* ---- linear layers ---------------------------------------------------------------------------------------------- */

enum { STORE, ADD, SILU_MUL };

typedef struct {
  const float *x; /* [rows][x_stride] */
  float *y;       /* [rows][y_stride] */
  const void *weight;
  const float *bias;
  int64_t x_stride, y_stride;
  int rows, depth, mode, is_bf16;
} Linear;

/* What to prefetch while a tile runs: one line per depth step. Weights come from memory once and are used for all tiles:
 * the first tile reads a little ahead in its own panel, the later ones fetch the next panel meanwhile. */
typedef struct {
  const char *start;
  int64_t step;
} Fetch;

INLINE Fetch plan_fetch(const char *panel, int64_t panel_bytes, int64_t line_bytes, int tile, int tiles) {
  if (tile == 0) return (Fetch){panel + PREFETCH_BYTES, line_bytes};
  return (Fetch){panel + panel_bytes + panel_bytes * (tile - 1) / (tiles - 1), line_bytes / (tiles - 1)};
}

/* One row tile times one weight panel. A row's sum runs over depth in order, whatever `tile` is. */
INLINE void linear_tile(const Linear *op, const void *panel, Fetch fetch, int panel_index, int row,
                        const int tile, const int is_bf16) {
  f32v low[MAX_TILE], high[MAX_TILE], w_low, w_high;
  const float *x = op->x + row * op->x_stride;
  UNROLL for (int r = 0; r < tile; r++) low[r] = high[r] = splat(0.0f);
  for (int k = 0; k < op->depth; k++) {
    load_panel_row(panel, k, is_bf16, &w_low, &w_high);
    __builtin_prefetch(fetch.start + k * fetch.step, 0, 2);
    UNROLL for (int r = 0; r < tile; r++) {
      f32v value = splat(x[r * op->x_stride + k]);
      low[r] = fma16(value, w_low, low[r]);
      high[r] = fma16(value, w_high, high[r]);
    }
  }
  UNROLL for (int r = 0; r < tile; r++) {
    float *y = op->y + (row + r) * op->y_stride;
    if (op->mode == SILU_MUL) {
      f32v gate = low[r];
      store(y + panel_index * LANES, gate / (splat(1.0f) + exp16(-gate)) * high[r]);
      continue;
    }
    y += panel_index * PANEL;
    if (op->mode == ADD) {
      low[r] = load(y) + low[r];
      high[r] = load(y + LANES) + high[r];
    } else if (op->bias) {
      low[r] = low[r] + load(op->bias + panel_index * PANEL);
      high[r] = high[r] + load(op->bias + panel_index * PANEL + LANES);
    }
    store(y, low[r]);
    store(y + LANES, high[r]);
  }
}

#define TILE_CASE(n) \
  case n: linear_tile(op, panel, fetch, panel_index, row, n, is_bf16); break;

INLINE void linear_panel_typed(const Linear *op, int panel_index, const int is_bf16) {
  int64_t line_bytes = PANEL * (is_bf16 ? 2 : 4), panel_bytes = op->depth * line_bytes;
  const char *panel = (const char *)op->weight + panel_index * panel_bytes;
  int tiles = (op->rows + MAX_TILE - 1) / MAX_TILE;
  for (int i = 0; i < tiles; i++) {
    int row = (int)((int64_t)op->rows * i / tiles), end = (int)((int64_t)op->rows * (i + 1) / tiles);
    Fetch fetch = plan_fetch(panel, panel_bytes, line_bytes, i, tiles);
    switch (end - row) {
      TILE_CASE(1) TILE_CASE(2) TILE_CASE(3) TILE_CASE(4) TILE_CASE(5) TILE_CASE(6)
      TILE_CASE(7) TILE_CASE(8) TILE_CASE(9) TILE_CASE(10) TILE_CASE(11) TILE_CASE(12)
    }
  }
}

static void linear_panel_bf16(const Linear *op, int panel_index) { linear_panel_typed(op, panel_index, 1); }
static void linear_panel_f32(const Linear *op, int panel_index) { linear_panel_typed(op, panel_index, 0); }

/* Threads take chunks of panels until none is left: big enough for the prefetcher, small enough to share evenly. */
static void linear(const Linear *op, int num_panels, const Batch *batch, int phase) {
  int chunk = num_panels / (4 * batch->num_threads) + 1;
  for (;;) {
    int start = next_chunk(batch, phase) * chunk;
    if (start >= num_panels) return;
    for (int i = start; i < min32(start + chunk, num_panels); i++)
      if (op->is_bf16) linear_panel_bf16(op, i);
      else linear_panel_f32(op, i);
  }
}

/* ---- attention -------------------------------------------------------------------------------------------------- */

#define MAX_GROUP 4

/* Scores of `group` query heads against one tile of PANEL keys; masked columns become -inf. */
INLINE void score_tile(const float *q, int dim, const void *keys, const char *next_keys, int is_bf16, float scale, int first, int last,
                       const int group, f32v *low, f32v *high) {
  f32v k_low, k_high;
  UNROLL for (int g = 0; g < group; g++) low[g] = high[g] = splat(0.0f);
  for (int d = 0; d < dim; d++) {
    load_panel_row(keys, d, is_bf16, &k_low, &k_high);
    __builtin_prefetch(next_keys + d * (is_bf16 ? 64 : 128), 0, 3);
    UNROLL for (int g = 0; g < group; g++) {
      f32v value = splat(q[g * dim + d]);
      low[g] = fma16(value, k_low, low[g]);
      high[g] = fma16(value, k_high, high[g]);
    }
  }
  const i32v lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  i32v keep_low = (lane >= first) & (lane <= last), keep_high = (lane + LANES >= first) & (lane + LANES <= last);
  i32v masked = (i32v)splat(-__builtin_inff());
  UNROLL for (int g = 0; g < group; g++) {
    low[g] = (f32v)(((i32v)(low[g] * splat(scale)) & keep_low) | (masked & ~keep_low));
    high[g] = (f32v)(((i32v)(high[g] * splat(scale)) & keep_high) | (masked & ~keep_high));
  }
}

/* Adds the weighted values of one tile to `out` [group][dim], after scaling it by `keep`. */
INLINE void value_tile(float *out, const float *keep, const float *weights, const void *values, const char *next_values,
                       int dim, int is_bf16, int first, int last, const int group) {
  for (int chunk = 0; chunk < dim; chunk += PANEL) {
    f32v low[MAX_GROUP], high[MAX_GROUP], v_low, v_high;
    UNROLL for (int g = 0; g < group; g++) {
      low[g] = load(out + g * dim + chunk) * splat(keep[g]);
      high[g] = load(out + g * dim + chunk + LANES) * splat(keep[g]);
    }
    int64_t rows_per_token = dim / PANEL, row = chunk / PANEL;
    for (int j = first; j <= last; j++) {
      load_panel_row(values, j * rows_per_token + row, is_bf16, &v_low, &v_high);
      __builtin_prefetch(next_values + (j * rows_per_token + row) * (is_bf16 ? 64 : 128), 0, 3);
      UNROLL for (int g = 0; g < group; g++) {
        f32v weight = splat(weights[g * PANEL + j]);
        low[g] = fma16(weight, v_low, low[g]);
        high[g] = fma16(weight, v_high, high[g]);
      }
    }
    UNROLL for (int g = 0; g < group; g++) {
      store(out + g * dim + chunk, low[g]);
      store(out + g * dim + chunk + LANES, high[g]);
    }
  }
}

/* Byte offset of one tile of PANEL tokens in the key and value caches. */
INLINE int64_t kv_tile(const Model *model, const int32_t *blocks, int kv_head, int tile) {
  int position = tile * PANEL, block_size = model->block_size;
  int64_t token_bytes = model->head_dim * (model->kv_is_bf16 ? 2 : 4);
  int64_t head = (int64_t)blocks[position / block_size] * model->num_kv_heads + kv_head;
  return (head * block_size + position % block_size / PANEL * PANEL) * token_bytes;
}

/* A node of a draft tree on its way from the last committed token. Its positions there lie in the slots of its ancestors,
 * not in those that the block table says: tiles from `first_tile` on are put together, so that each of its columns is
 * where a chain has it, and every sum has its order. */
typedef struct {
  const Batch *batch;
  int row, first_tile;
  char *keys, *values; /* one tile each */
} Path;

static void gather_tile(const Model *model, const Layer *layer, const Path *path, int kv_head, int64_t start, int tile) {
  const Batch *batch = path->batch;
  int64_t bytes = (int64_t)PANEL * model->head_dim * (model->kv_is_bf16 ? 2 : 4);
  __builtin_memcpy(path->keys, (const char *)layer->k_cache + start, bytes);
  __builtin_memcpy(path->values, (const char *)layer->v_cache + start, bytes);
  for (int row = path->row; batch->row_parents[row] >= 0; row = batch->row_parents[row]) {
    int column = batch->positions[row] - tile * PANEL;
    if (column < 0 || column >= PANEL) continue;
    Place to = {key_column(model, column), (int64_t)column * model->head_dim};
    copy_kv(model, layer, place_of(model, batch->slots[row], kv_head), path->keys, path->values, to);
  }
}

/* Softmax attention of `group` query heads of one row over positions first..last, tile by tile with a running maximum.
 * `path` is NULL but for nodes of a draft tree. */
INLINE void attend_group(const Model *model, const Layer *layer, const float *q, const int32_t *blocks, int kv_head,
                         int first, int last, float *out, const Path *path, const int group) {
  int dim = model->head_dim, bf16 = model->kv_is_bf16;
  float best[MAX_GROUP], keep[MAX_GROUP], weights[MAX_GROUP * PANEL];
  f32v total[MAX_GROUP], low[MAX_GROUP], high[MAX_GROUP];
  UNROLL for (int g = 0; g < group; g++) { best[g] = -__builtin_inff(); total[g] = splat(0.0f); }
  for (int i = 0; i < group * dim; i += LANES) store(out + i, splat(0.0f));
  for (int tile = first / PANEL; tile <= last / PANEL; tile++) {
    int position = tile * PANEL, begin = first > position ? first - position : 0, end = min32(PANEL - 1, last - position);
    int64_t start = kv_tile(model, blocks, kv_head, tile), next = kv_tile(model, blocks, kv_head, min32(tile + 1, last / PANEL));
    const char *keys = (const char *)layer->k_cache + start, *values = (const char *)layer->v_cache + start;
    const char *next_keys = (const char *)layer->k_cache + next, *next_values = (const char *)layer->v_cache + next;
    if (path && tile >= path->first_tile) {
      gather_tile(model, layer, path, kv_head, start, tile);
      keys = path->keys;
      values = path->values;
    }
    score_tile(q, dim, keys, next_keys, bf16, model->attention_scale, begin, end, group, low, high);
    UNROLL for (int g = 0; g < group; g++) {
      float now = __builtin_reduce_max(__builtin_elementwise_max(low[g], high[g]));
      now = now > best[g] ? now : best[g];
      keep[g] = exp16(splat(best[g] - now))[0];
      best[g] = now;
      f32v p_low = exp16(low[g] - splat(now)), p_high = exp16(high[g] - splat(now));
      total[g] = total[g] * splat(keep[g]);
      store(weights + g * PANEL, p_low);
      store(weights + g * PANEL + LANES, p_high);
      const i32v lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
      total[g] += (f32v)((i32v)p_low & ((lane >= begin) & (lane <= end)));
      total[g] += (f32v)((i32v)p_high & ((lane + LANES >= begin) & (lane + LANES <= end)));
    }
    value_tile(out, keep, weights, values, next_values, dim, bf16, begin, end, group);
  }
  UNROLL for (int g = 0; g < group; g++) {
    f32v inverse = splat(1.0f / sum16(total[g]));
    for (int d = 0; d < dim; d += LANES) store(out + g * dim + d, load(out + g * dim + d) * inverse);
  }
}

static void attend1(const Model *m, const Layer *l, const float *q, const int32_t *b, int h, int f, int e, float *o, const Path *p) { attend_group(m, l, q, b, h, f, e, o, p, 1); }
static void attend2(const Model *m, const Layer *l, const float *q, const int32_t *b, int h, int f, int e, float *o, const Path *p) { attend_group(m, l, q, b, h, f, e, o, p, 2); }
static void attend3(const Model *m, const Layer *l, const float *q, const int32_t *b, int h, int f, int e, float *o, const Path *p) { attend_group(m, l, q, b, h, f, e, o, p, 3); }
static void attend4(const Model *m, const Layer *l, const float *q, const int32_t *b, int h, int f, int e, float *o, const Path *p) { attend_group(m, l, q, b, h, f, e, o, p, 4); }

/* All query heads that share one KV head, for one row, up to MAX_GROUP at a time. */
static void attend_heads(const Model *model, const Layer *layer, const Batch *batch, int row, int kv_head, const Path *path) {
  int dim = model->head_dim, group = model->num_heads / model->num_kv_heads, last = batch->positions[row];
  int first = model->window && last >= model->window ? last - model->window + 1 : 0;
  const int32_t *blocks = batch->block_tables + (int64_t)batch->row_sequences[row] * batch->max_blocks;
  for (int head = kv_head * group, left = group; left > 0; head += MAX_GROUP, left -= MAX_GROUP) {
    const float *q = batch->qkv + (int64_t)row * model->qkv_stride + head * dim;
    float *out = batch->attended + ((int64_t)row * model->num_heads + head) * dim;
    switch (min32(left, MAX_GROUP)) {
      case 1: attend1(model, layer, q, blocks, kv_head, first, last, out, path); break;
      case 2: attend2(model, layer, q, blocks, kv_head, first, last, out, path); break;
      case 3: attend3(model, layer, q, blocks, kv_head, first, last, out, path); break;
      default: attend4(model, layer, q, blocks, kv_head, first, last, out, path);
    }
  }
}

/* Apart, so that no other row pays for the room. */
static __attribute__((noinline)) void attend_node(const Model *model, const Layer *layer, const Batch *batch, int row, int kv_head) {
  __attribute__((aligned(64))) char keys[PANEL * MAX_HEAD_DIM * 4], values[PANEL * MAX_HEAD_DIM * 4];
  int root = row;
  while (batch->row_parents[root] >= 0) root = batch->row_parents[root];
  Path path = {batch, row, (batch->positions[root] + 1) / PANEL, keys, values};
  attend_heads(model, layer, batch, row, kv_head, &path);
}

static void attend_row(const Model *model, const Layer *layer, const Batch *batch, int row, int kv_head) {
  if (batch->row_parents && batch->row_parents[row] >= 0) attend_node(model, layer, batch, row, kv_head);
  else attend_heads(model, layer, batch, row, kv_head, 0);
}

/* ---- layers ----------------------------------------------------------------------------------------------------- */

INLINE int panels(int columns) { return (columns + PANEL - 1) / PANEL; }

static void norm_rows(const Model *model, const Batch *batch, const float *weight, int thread) {
  for (int row = thread; row < batch->num_rows; row += batch->num_threads) {
    int64_t start = (int64_t)row * model->hidden;
    rms_norm(batch->hidden + start, weight, model->norm_eps, model->hidden, batch->normed + start);
  }
}

/* From normed rows of `depth` elements to the sum with the residual. */
static void attention(const Model *model, const Layer *layer, const Batch *batch, int depth, int thread, int phase) {
  int width = model->num_heads * model->head_dim, rows = batch->num_rows;
  barrier_wait(batch);
  Linear qkv = {batch->normed, batch->qkv, layer->qkv, layer->qkv_bias, depth, model->qkv_stride,
                rows, depth, STORE, model->weight_is_bf16};
  linear(&qkv, model->qkv_stride / PANEL, batch, phase);
  barrier_wait(batch);
  for (int row = thread; row < rows; row += batch->num_threads) position_row(model, layer, batch, row);
  barrier_wait(batch);
  for (int task; (task = next_chunk(batch, phase + 1)) < rows * model->num_kv_heads;)
    attend_row(model, layer, batch, task / model->num_kv_heads, task % model->num_kv_heads);
  barrier_wait(batch);
  Linear o = {batch->attended, batch->hidden, layer->o, 0, width, model->hidden, rows, width, ADD, model->weight_is_bf16};
  linear(&o, panels(model->hidden), batch, phase + 2);
  barrier_wait(batch);
}

static void attention_layer(const Model *model, const Layer *layer, const Batch *batch, int thread, int phase) {
  norm_rows(model, batch, layer->input_norm, thread);
  attention(model, layer, batch, model->hidden, thread, phase);
}

static void mlp_layer(const Model *model, const Layer *layer, const Batch *batch, int thread, int phase) {
  int rows = batch->num_rows;
  norm_rows(model, batch, layer->post_norm, thread);
  barrier_wait(batch);
  Linear gate_up = {batch->normed, batch->activated, layer->gate_up, 0, model->hidden, model->intermediate,
                    rows, model->hidden, SILU_MUL, model->weight_is_bf16};
  linear(&gate_up, model->intermediate / LANES, batch, phase + 3);
  barrier_wait(batch);
  Linear down = {batch->activated, batch->hidden, layer->down, 0, model->intermediate, model->hidden,
                 rows, model->intermediate, ADD, model->weight_is_bf16};
  linear(&down, panels(model->hidden), batch, phase + 4);
  barrier_wait(batch);
}

static void logits_layer(const Model *model, const Batch *batch, int thread, int phase) {
  int rows = batch->num_logit_rows;
  for (int i = thread; i < rows; i += batch->num_threads)
    rms_norm(batch->hidden + (int64_t)batch->logit_rows[i] * model->hidden, model->final_norm, model->norm_eps,
             model->hidden, batch->normed + (int64_t)i * model->hidden);
  barrier_wait(batch);
  int columns = panels(model->vocab) * PANEL;
  Linear head = {batch->normed, batch->logits, model->lm_head, 0, model->hidden, columns,
                 rows, model->hidden, STORE, model->weight_is_bf16};
  linear(&head, columns / PANEL, batch, phase);
  barrier_wait(batch);
}

/* Keeps what enters `layer`, if it is asked for. The rows that this thread copies are changed behind a barrier only. */
static void keep_features(const Model *model, const Batch *batch, int layer, int thread) {
  for (int f = 0; f < batch->num_features; f++) {
    if (batch->feature_layers[f] != layer) continue;
    for (int row = thread; row < batch->num_rows; row += batch->num_threads)
      __builtin_memcpy(batch->features + ((int64_t)row * batch->num_features + f) * model->hidden,
                       batch->hidden + (int64_t)row * model->hidden, model->hidden * sizeof(float));
  }
}

/* The share of thread `thread` in one forward pass; returns when every thread has finished. */
void outrider_forward(const Model *model, const Batch *batch, int32_t thread) {
  for (int row = thread; row < batch->num_rows; row += batch->num_threads)
    embed_row(model, batch->token_ids[row], batch->hidden + (int64_t)row * model->hidden);
  barrier_wait(batch);
  for (int i = 0; i < model->num_layers; i++) {
    keep_features(model, batch, i, thread);
    attention_layer(model, &model->layers[i], batch, thread, i * PHASES);
    mlp_layer(model, &model->layers[i], batch, thread, i * PHASES);
  }
  keep_features(model, batch, model->num_layers, thread);
  if (batch->num_logit_rows) logits_layer(model, batch, thread, model->num_layers * PHASES);
}

/* The same for a head. Rows start from batch->features, or where these are NULL from batch->hidden as the last pass left
 * it; batch->normed holds two hidden states a row. Behind it batch->hidden holds what left the layer. */
void outrider_head_forward(const Model *model, const Head *head, const Batch *batch, int32_t thread) {
  const Layer *layer = model->layers;
  int size = model->hidden;
  if (batch->features) {
    Linear fc = {batch->features, batch->hidden, head->fc, 0, head->feature_size, size,
                 batch->num_rows, head->feature_size, STORE, model->weight_is_bf16};
    linear(&fc, panels(size), batch, PHASES - 1);
    barrier_wait(batch);
  }
  for (int row = thread; row < batch->num_rows; row += batch->num_threads) {
    float *hidden = batch->hidden + (int64_t)row * size, *pair = batch->normed + (int64_t)row * 2 * size;
    embed_row(model, batch->token_ids[row], pair);
    rms_norm(pair, layer->input_norm, model->norm_eps, size, pair);
    rms_norm(hidden, head->hidden_norm, model->norm_eps, size, pair + size);
    if (head->normed_residual)
      for (int i = 0; i < size; i += LANES) store(hidden + i, load(pair + size + i));
  }
  attention(model, layer, batch, 2 * size, thread, 0);
  mlp_layer(model, layer, batch, thread, 0);
  if (batch->num_logit_rows) logits_layer(model, batch, thread, PHASES);
}

/* Copies the KV of single tokens in all layers, pair by pair: no slot may be written before it is read. */
void outrider_move_kv(const Model *model, const int32_t *sources, const int32_t *destinations, int32_t count) {
  for (int i = 0; i < model->num_layers; i++)
    for (int32_t pair = 0; pair < count; pair++)
      for (int head = 0; head < model->num_kv_heads; head++)
        copy_kv(model, &model->layers[i], place_of(model, sources[pair], head), model->layers[i].k_cache,
                model->layers[i].v_cache, place_of(model, destinations[pair], head));
}

/* Waits until *ticket differs from `seen`: spins briefly, then polls. Returns the new value, or `seen` after the timeout. */
int32_t outrider_wait(const int32_t *ticket, int32_t seen, int32_t timeout_us) {
  for (int spins = 0; spins < 2000; spins++) {
    int32_t now = __atomic_load_n(ticket, __ATOMIC_ACQUIRE);
    if (now != seen) return now;
  }
  for (int32_t waited = 0; waited < timeout_us; waited += 40) {
    int32_t now = __atomic_load_n(ticket, __ATOMIC_ACQUIRE);
    if (now != seen) return now;
    usleep(40);
  }
  return seen;
}

void outrider_signal(int32_t *ticket) { __atomic_add_fetch(ticket, 1, __ATOMIC_RELEASE); }
