/* C interface of the Rust crate ikv-text: tokenizers, chat templates and grammars.
 *
 * Rules for every function: no panic and no exception crosses this border; a failure returns a
 * status other than IKV_TEXT_OK and a message in `error`, which the caller frees with
 * ikv_text_free(). Strings are bytes with a length, without a final NUL. Handles may be used by
 * several threads at once; freeing one while it is in use is a bug of the caller.
 */
#ifndef IKV_TEXT_H_
#define IKV_TEXT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes. */
enum {
  IKV_TEXT_OK = 0,
  IKV_TEXT_INVALID = 1, /* the input (vocabulary, template, JSON) is wrong */
  IKV_TEXT_RAISED = 2,  /* the template itself refused, by raise_exception() */
  IKV_TEXT_PANIC = 3    /* a bug in the library, contained */
};

/* Borrowed bytes. `data` may be null when `len` is 0. */
typedef struct {
  const char* data;
  size_t len;
} IkvSlice;

/* Owned bytes; free with ikv_text_free(). */
typedef struct {
  char* data;
  size_t len;
} IkvText;

void ikv_text_free(IkvText text);

/* ---- tokenizer ---- */

typedef struct IkvTokenizer IkvTokenizer;

/* Model kinds. */
enum { IKV_TOKENIZER_BYTE_BPE = 0, IKV_TOKENIZER_SPM = 1 };

/* Token types, GGUF's numbers (tokenizer.ggml.token_type). */
enum {
  IKV_TOKEN_NORMAL = 1,
  IKV_TOKEN_UNKNOWN = 2,
  IKV_TOKEN_CONTROL = 3,
  IKV_TOKEN_USER_DEFINED = 4,
  IKV_TOKEN_UNUSED = 5,
  IKV_TOKEN_BYTE = 6
};

typedef struct {
  int32_t kind;
  const IkvSlice* tokens; /* num_tokens texts as the file has them, index = id */
  const int32_t* types;   /* num_tokens types */
  const float* scores;    /* num_tokens scores (SPM), or null */
  size_t num_tokens;
  const IkvSlice* merges; /* "left right", best first (byte BPE), or null */
  size_t num_merges;
  const IkvSlice* split_patterns; /* regular expressions applied in turn (byte BPE) */
  size_t num_split_patterns;
  int32_t ignore_merges;    /* a word that is a token is taken whole (Llama 3) */
  int32_t add_space_prefix; /* SPM: a space before the first text and after special tokens */
  int32_t unknown_id;       /* SPM: token for what the vocabulary lacks, or -1 */
} IkvTokenizerSpec;

/* Copies what it needs from `spec`. Cost: about 50 ms for 49k tokens, 1 s for a 262k SPM. */
int32_t ikv_tokenizer_new(const IkvTokenizerSpec* spec, IkvTokenizer** out, IkvText* error);
void ikv_tokenizer_free(IkvTokenizer* tokenizer);

/* A byte range [begin, end) of a text. */
typedef struct {
  size_t begin;
  size_t end;
} IkvRange;

/* Owned result of encode; free with ikv_tokens_free(). `ends[i]` is the byte offset in the text
 * where token i ends (tokens tile the text; for a text of invalid UTF-8 the offsets are those of
 * the text with invalid bytes replaced). */
typedef struct {
  int32_t* ids;
  uint64_t* ends;
  size_t len;
  void* owner;
} IkvTokens;

/* Text to tokens. `parse_special`: control tokens written in the text become control tokens, except
 * where one overlaps a range of `literal` (ascending, disjoint). User-defined tokens always do. */
int32_t ikv_tokenizer_encode(const IkvTokenizer* tokenizer, IkvSlice text, int32_t parse_special,
                             const IkvRange* literal, size_t num_literal, IkvTokens* out,
                             IkvText* error);
void ikv_tokens_free(IkvTokens tokens);

/* Copies `text` with `mark` inserted after the first character of every place where a control token
 * is written. `text` must be valid UTF-8. */
int32_t ikv_tokenizer_mark_control(const IkvTokenizer* tokenizer, IkvSlice text, IkvSlice mark,
                                   IkvText* out, IkvText* error);

/* ---- chat template ---- */

typedef struct IkvTemplate IkvTemplate;

/* Compiles a Jinja template of at most 128 KiB. */
int32_t ikv_template_new(IkvSlice source, IkvTemplate** out, IkvText* error);
void ikv_template_free(IkvTemplate* chat_template);

/* Renders with the variables of `context_json` (a JSON object). The number of template instructions
 * and the bytes they make are bounded, so that a hostile template ends with an error. */
int32_t ikv_template_render(const IkvTemplate* chat_template, IkvSlice context_json, IkvText* out,
                            IkvText* error);

/* ---- grammar ---- */

typedef struct IkvGrammarVocabulary IkvGrammarVocabulary;
typedef struct IkvGrammar IkvGrammar;

/* Grammar kinds. */
enum { IKV_GRAMMAR_JSON_SCHEMA = 0, IKV_GRAMMAR_REGEX = 1, IKV_GRAMMAR_LARK = 2 };

/* Prepares a vocabulary: bytes and control flag of each token, and the tokens that end a reply (at
 * least one). About 50 ms for 49k tokens. Must outlive its grammars. */
int32_t ikv_grammar_vocabulary_new(const IkvSlice* tokens, const uint8_t* control,
                                   size_t num_tokens, const int32_t* ends, size_t num_ends,
                                   IkvGrammarVocabulary** out, IkvText* error);
void ikv_grammar_vocabulary_free(IkvGrammarVocabulary* vocabulary);

/* A grammar at its start. A handle is used by one thread at a time. */
int32_t ikv_grammar_new(const IkvGrammarVocabulary* vocabulary, int32_t kind, IkvSlice source,
                        IkvGrammar** out, IkvText* error);
int32_t ikv_grammar_copy(const IkvGrammar* grammar, IkvGrammar** out, IkvText* error);
void ikv_grammar_free(IkvGrammar* grammar);

/* Which tokens may come next: a bit each, lowest bit of word 0 is token 0. */
int32_t ikv_grammar_mask(IkvGrammar* grammar, uint32_t* words, size_t num_words, IkvText* error);
/* Takes the next token; one that the mask forbids is refused and leaves the handle unusable. */
int32_t ikv_grammar_accept(IkvGrammar* grammar, int32_t token, IkvText* error);
/* Whether the reply may end here: 0 or 1. */
int32_t ikv_grammar_may_end(IkvGrammar* grammar, int32_t* out, IkvText* error);

#ifdef __cplusplus
}
#endif
#endif /* IKV_TEXT_H_ */
