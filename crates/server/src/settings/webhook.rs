//! Settings of the webhook that gets the events of a process.

use std::fs;

use super::traces::url;
use super::vars::Reader;
use crate::webhook::{SigningSecret, WebhookOptions};

/// Reads the URL, and the secret from a variable or from a file.
pub(super) fn read(read: &mut Reader<'_>) -> Option<WebhookOptions> {
    const URL: &str = "SLUICEGATE_WEBHOOK_URL";
    const TEXT: &str = "SLUICEGATE_WEBHOOK_SECRET";
    const FILE: &str = "SLUICEGATE_WEBHOOK_SECRET_FILE";
    if read.text(TEXT).is_some() && read.text(FILE).is_some() {
        read.errors.push(format!("{TEXT} and {FILE} are both set: set only one"));
    }
    // The text is a secret: it is not repeated.
    let text = read.check(TEXT, |text| SigningSecret::new(text).map_err(|error| error.to_string()));
    let of_file = read.check(FILE, |path| {
        let text = fs::read_to_string(path).map_err(|error| {
            format!(
                "cannot read the secret from `{path}`: {error}; check the path and its permissions"
            )
        })?;
        SigningSecret::new(&text).map_err(|error| format!("the file `{path}`: {error}"))
    });
    let url = read.read(URL, "a URL that begins with http:// or https://", url);
    let secret = text.or(of_file);
    if url.is_none() && secret.is_some() && read.text(URL).is_none() {
        read.errors
            .push(format!("{TEXT}: has no effect without {URL}; set it, or remove the secret"));
    }
    Some(WebhookOptions { url: url?, secret })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Vars;

    fn of(given: &[(&'static str, &'static str)]) -> Result<Option<WebhookOptions>, String> {
        let vars = Vars::new(given.to_vec());
        let mut reader = Reader::new(&vars);
        let options = read(&mut reader);
        if reader.errors.is_empty() { Ok(options) } else { Err(reader.errors.join("\n")) }
    }

    #[test]
    fn a_webhook_has_a_url_and_may_have_a_secret() {
        assert_eq!(of(&[]), Ok(None));
        let url = ("SLUICEGATE_WEBHOOK_URL", "https://me:secret@example.com/hook?key=1");
        let options = of(&[url]).unwrap().unwrap();
        assert_eq!(
            (options.to_string().as_str(), options.secret),
            ("https://example.com/hook", None)
        );
        let signed = of(&[url, ("SLUICEGATE_WEBHOOK_SECRET", "open sesame")]).unwrap().unwrap();
        assert!(signed.secret.is_some() && !format!("{signed:?}").contains("sesame"));
        let refused = [
            (vec![("SLUICEGATE_WEBHOOK_URL", "ftp://x")], "begins with http"),
            (vec![("SLUICEGATE_WEBHOOK_SECRET", "a")], "has no effect without"),
            (vec![url, ("SLUICEGATE_WEBHOOK_SECRET", "whsec_?")], "base64"),
            (vec![url, ("SLUICEGATE_WEBHOOK_SECRET_FILE", "/nowhere")], "cannot read the secret"),
        ];
        for (given, expected) in refused {
            let error = of(&given).unwrap_err();
            assert!(error.contains(expected) && !error.contains("whsec_?"), "{error}");
        }
    }
}
