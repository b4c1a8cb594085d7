//! SentencePiece's form of a text: spaces are U+2581.

const SPM_SPACE: char = '\u{2581}';

/// A text with its spaces replaced, and the way back to the original's offsets.
pub struct Escaped {
    pub bytes: Vec<u8>,
    prefix_bytes: usize,
    /// Where in `bytes` each replaced space begins.
    spaces: Vec<usize>,
    passed: usize,
}

impl Escaped {
    pub fn new(text: &[u8], prefix: bool) -> Escaped {
        let mut space = [0; 4];
        let space = SPM_SPACE.encode_utf8(&mut space).as_bytes();
        let mut bytes = Vec::with_capacity(text.len() + text.len() / 4 + space.len());
        let mut spaces = Vec::new();
        if prefix {
            bytes.extend_from_slice(space);
        }
        for byte in text {
            if *byte == b' ' {
                spaces.push(bytes.len());
                bytes.extend_from_slice(space);
            } else {
                bytes.push(*byte);
            }
        }
        let prefix_bytes = if prefix { space.len() } else { 0 };
        Escaped { bytes, prefix_bytes, spaces, passed: 0 }
    }

    /// The original's offset for an offset in `bytes`; calls must come in ascending order.
    pub fn original(&mut self, offset: usize) -> usize {
        while self.spaces.get(self.passed).is_some_and(|space| space + 2 < offset) {
            self.passed += 1;
        }
        // Inside a replaced space: already its one byte's end.
        let offset = self.spaces.get(self.passed).map_or(offset, |space| offset.min(space + 1));
        offset.saturating_sub(self.prefix_bytes + 2 * self.passed)
    }
}
