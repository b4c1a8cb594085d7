//! Tokenizers, chat templates and grammars of IntentKV behind the C interface of `include/ikv_text.h`.

mod escaped;
mod ffi;
mod ffi_grammar;
mod grammar;
mod pyjson;
mod pymethods;
mod splitter;
mod template;
mod tokenizer;
mod vocabulary;

pub use grammar::{GrammarKind, GrammarState, GrammarVocabulary};
pub use template::ChatTemplate;
pub use tokenizer::Tokenizer;
pub use vocabulary::{ModelKind, TokenizerSpec};
