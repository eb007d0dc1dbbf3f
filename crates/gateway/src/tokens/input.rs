//! The extent of the input of a request: names, texts, numbers, images and files.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Bytes of a token of input.
const BYTES_PER_TOKEN: u64 = 3;
/// Bytes of a data URL before its data, at most.
const DATA_URL_HEAD: usize = 100;
/// Tokens of an image or a file.
const MEDIA_TOKENS: u64 = 1_600;

/// The extent of the input.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct InputText {
    bytes: u64,
    numbers: u64,
    media: u64,
}

impl InputText {
    /// The estimate.
    pub(super) const fn tokens(&self) -> u64 {
        let tokens = self.bytes.div_ceil(BYTES_PER_TOKEN).saturating_add(self.numbers);
        tokens.saturating_add(self.media.saturating_mul(MEDIA_TOKENS))
    }

    /// Adds a value of JSON; `None` if it is malformed.
    pub(super) fn add(&mut self, json: &str) -> Option<()> {
        let mut json = serde_json::Deserializer::from_str(json);
        TextCount { input: self, is_media: false }.deserialize(&mut json).ok()
    }

    fn add_text(&mut self, text: &str) {
        let head = text.as_bytes().get(..text.len().min(DATA_URL_HEAD)).unwrap_or_default();
        let is_data = head.starts_with(b"data:") && head.windows(8).any(|part| part == b";base64,");
        match is_data {
            true => self.media += 1,
            false => self.bytes += text.len() as u64,
        }
    }
}

/// Names of members whose texts are images or files, or where they are.
fn is_media(name: &str) -> bool {
    matches!(name, "data" | "file_data" | "file_id" | "file_url" | "image_url" | "url")
}

/// Counts names, texts and numbers, without a copy.
struct TextCount<'c> {
    input: &'c mut InputText,
    /// Whether a text here is an image or a file.
    is_media: bool,
}

impl<'de> DeserializeSeed<'de> for TextCount<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextCount<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        match self.is_media {
            true => self.input.media += 1,
            false => self.input.add_text(text),
        }
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.input.numbers += 1;
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.input.numbers += 1;
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.input.numbers += 1;
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { input, .. } = self;
        while items.next_element_seed(TextCount { input, is_media: false })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { input, .. } = self;
        while let Some(name) = entries.next_key::<Cow<'_, str>>()? {
            input.bytes += name.len() as u64;
            entries.next_value_seed(TextCount { input, is_media: is_media(&name) })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_is_estimated_by_its_texts() {
        for (json, expected) in [
            (format!("\"{}\"", "x".repeat(30)), 10),
            (format!("\"{}\"", "x".repeat(31)), 11),
            ("[1,2,3.5,-4]".to_owned(), 4),
            ("[true,null]".to_owned(), 0),
            // role, user, content: 15 bytes.
            (format!(r#"[{{"role":"user","content":"{}"}}]"#, "x".repeat(15)), 10),
            (r#""data: x, y and z""#.to_owned(), 6),
            (r#""\u00e9\u00e9\u00e9""#.to_owned(), 2),
            (r#"["data:image/png;base64,AAAA",{"image_url":"https://x"}]"#.to_owned(), 3_203),
        ] {
            let mut input = InputText::default();
            assert_eq!(input.add(&json), Some(()), "{json}");
            assert_eq!(input.tokens(), expected, "{json}");
        }
        let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        assert_eq!(InputText::default().add(&deep), None);
    }
}
