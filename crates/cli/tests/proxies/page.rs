//! A page of the guides, and what stands in its blocks.

use crate::support::root;

pub struct Page {
    text: String,
}

impl Page {
    /// A page of `docs/guide`.
    pub fn read(name: &str) -> Self {
        let path = root().join(format!("docs/guide/{name}.md"));
        Self { text: std::fs::read_to_string(path).unwrap() }
    }

    /// The blocks of a language, in their order.
    pub fn blocks(&self, language: &str) -> Vec<&str> {
        let blocks = self.text.split(&format!("```{language}\n")).skip(1).collect::<Vec<_>>();
        blocks.into_iter().map(|rest| rest.split("```").next().unwrap()).collect()
    }

    /// The one block of a language that begins so.
    pub fn block(&self, language: &str, beginning: &str) -> &str {
        let mut blocks = self.blocks(language);
        blocks.retain(|block| block.starts_with(beginning));
        let [block] = blocks.try_into().unwrap_or_else(|all| panic!("{beginning}: {all:?}"));
        block
    }

    /// Its rules.
    pub fn rules(&self) -> &str {
        self.block("yaml", "domain: web\n")
    }
}

/// A text with others in the place of some, each of which must be there.
pub fn replaced(text: &str, changes: &[(&str, String)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "there is no `{from}` in:\n{text}");
        text.replace(from, to)
    })
}

#[test]
fn the_rules_of_the_pages_are_those_of_the_examples() {
    for (page, example) in [("nginx", "nginx"), ("caddy", "web"), ("traefik", "web")] {
        let file = root().join(format!("docs/examples/{example}.yaml"));
        assert_eq!(Page::read(page).rules(), std::fs::read_to_string(file).unwrap(), "{page}");
    }
}
