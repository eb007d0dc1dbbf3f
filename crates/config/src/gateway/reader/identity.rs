//! `identity` and `access_log`.

use std::time::Duration;

use super::{GatewayReader, is_mapping, parse};
use crate::fields::Value;
use crate::gateway::keys::{ACCESS_LOG, API_KEYS, BODY_FIELDS, GEO, IDENTITY, JWT};
use crate::gateway::{
    AccessLogConfig, AccessLogFormat, ApiKeysConfig, BodyFieldsConfig, GeoConfig, IdentityConfig,
    JwksSource, JwtConfig,
};
use crate::problem::quoted;
use crate::units::{self, UnitError};

const API_KEY_HEADER: &str = "X-API-Key";
const LEEWAY: Duration = Duration::from_secs(60);
/// In place of a list of audiences.
const ANY: &str = "any";

impl GatewayReader<'_> {
    pub(super) fn identity(&mut self, value: &Value<'_, '_>) -> IdentityConfig {
        let Some(mut fields) = self.open(value, &IDENTITY) else {
            return IdentityConfig::default();
        };
        let api_keys = self.value(&mut fields, &IDENTITY, "api_keys");
        self.origins.has_api_keys = api_keys.is_some();
        let jwt = self.value(&mut fields, &IDENTITY, "jwt");
        self.origins.has_jwt = jwt.is_some();
        let geo = self.value(&mut fields, &IDENTITY, "geo");
        let body = self.value(&mut fields, &IDENTITY, "body");
        let former = self.value(&mut fields, &IDENTITY, "json_body");
        if let (Some(_), Some(former)) = (&body, &former) {
            let message = "is the former name of `body`, got both; remove `json_body`";
            former.refuse(self.report, message.to_owned());
        }
        let identity = IdentityConfig {
            api_keys: api_keys.and_then(|value| self.api_keys(&value)),
            jwt: jwt.and_then(|value| self.jwt(&value)),
            geo: geo.map(|value| self.geo(&value)).unwrap_or_default(),
            body: body.or(former).map(|value| self.body_fields(&value)).unwrap_or_default(),
        };
        self.close(fields, &IDENTITY);
        identity
    }

    fn api_keys(&mut self, value: &Value<'_, '_>) -> Option<ApiKeysConfig> {
        let mut fields = self.open(value, &API_KEYS)?;
        let file = self.need_file(&mut fields, &API_KEYS, "file");
        let header = self.get(&mut fields, &API_KEYS, "header", parse::header_name);
        let query = self.get(&mut fields, &API_KEYS, "query", parse::text);
        let forward = self.get(&mut fields, &API_KEYS, "forward", units::truth);
        self.close(fields, &API_KEYS);
        let header = header.or_else(|| query.is_none().then(|| API_KEY_HEADER.to_owned()));
        let forward = forward.unwrap_or(false);
        Some(ApiKeysConfig { file: file?, header, query, forward })
    }

    fn body_fields(&mut self, value: &Value<'_, '_>) -> BodyFieldsConfig {
        let default = BodyFieldsConfig::default();
        let Some(mut fields) = self.open(value, &BODY_FIELDS) else { return default };
        let bytes_max = self.get(&mut fields, &BODY_FIELDS, "max_bytes", parse::buffered_bytes);
        let timeout = self.get(&mut fields, &BODY_FIELDS, "timeout", parse::duration);
        self.close(fields, &BODY_FIELDS);
        BodyFieldsConfig {
            bytes_max: bytes_max.unwrap_or(default.bytes_max),
            timeout: timeout.unwrap_or(default.timeout),
        }
    }

    fn jwt(&mut self, value: &Value<'_, '_>) -> Option<JwtConfig> {
        let mut fields = self.open(value, &JWT)?;
        let jwks = match self.value(&mut fields, &JWT, "jwks") {
            Some(value) => self.jwks(&value),
            None => {
                self.require(&fields, &JWT, "jwks");
                None
            }
        };
        let texts = |reader: &mut Self, value: &Value<'_, '_>, read| {
            reader.one_or_many(value, "[api]", |reader, item| {
                item.read("api", read, reader.report).ok()
            })
        };
        let mut audience = Vec::new();
        match self.value(&mut fields, &JWT, "audience") {
            Some(value) => audience = texts(self, &value, parse::text),
            // A token for another service would be accepted here.
            None if fields.written("audience") == "nothing" => {
                let remedy = "write whom tokens are for, like `audience: api`, or `audience: any`";
                fields.missing("audience", remedy, self.report);
            }
            None => {}
        }
        if audience == [ANY] {
            audience.clear();
        }
        let algorithms = self.value(&mut fields, &JWT, "algorithms");
        let algorithms = algorithms.map(|value| texts(self, &value, algorithm)).unwrap_or_default();
        let issuer = self.get(&mut fields, &JWT, "issuer", parse::text);
        let leeway = self.get(&mut fields, &JWT, "leeway", parse::duration_or_zero);
        let cookie = self.get(&mut fields, &JWT, "cookie", parse::header_name);
        self.close(fields, &JWT);
        let leeway = leeway.unwrap_or(LEEWAY);
        Some(JwtConfig { jwks: jwks?, issuer, audience, algorithms, leeway, cookie })
    }

    /// A file, or a URL.
    fn jwks(&mut self, value: &Value<'_, '_>) -> Option<JwksSource> {
        let text = value.text("jwks.json", self.report).ok()?;
        if text.contains("://") {
            return value.read("", parse::url, self.report).ok().map(JwksSource::Url);
        }
        self.path(value).map(JwksSource::File)
    }

    fn geo(&mut self, value: &Value<'_, '_>) -> GeoConfig {
        let Some(mut fields) = self.open(value, &GEO) else { return GeoConfig::default() };
        let geo = GeoConfig {
            asn: self.file(&mut fields, &GEO, "asn"),
            country: self.file(&mut fields, &GEO, "country"),
        };
        self.origins.has_asn = geo.asn.is_some();
        self.origins.has_country = geo.country.is_some();
        self.close(fields, &GEO);
        geo
    }

    /// A format, or a mapping.
    pub(super) fn access_log(&mut self, value: &Value<'_, '_>) -> Option<AccessLogConfig> {
        if !is_mapping(value) {
            let format = value.read("json", log_format, self.report).ok()?;
            return Some(AccessLogConfig { path: None, format });
        }
        let mut fields = self.open(value, &ACCESS_LOG)?;
        let path = self.any_file(&mut fields, &ACCESS_LOG, "path", true);
        let format = self.get(&mut fields, &ACCESS_LOG, "format", log_format);
        self.close(fields, &ACCESS_LOG);
        Some(AccessLogConfig { path, format: format.unwrap_or_default() })
    }
}

fn log_format(text: &str) -> Result<AccessLogFormat, UnitError> {
    let words = [("json", AccessLogFormat::Json), ("combined", AccessLogFormat::Combined)];
    units::choice(text, &words)
}

/// Algorithms of RFC 7518 and RFC 8037 that sign.
const ALGORITHMS: [&str; 12] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "EdDSA",
];

fn algorithm(text: &str) -> Result<String, UnitError> {
    if text.eq_ignore_ascii_case("none") {
        let message = format!(
            "must be a signature, got {}: anybody could write such a token; write it like `RS256`",
            quoted(text)
        );
        return Err(UnitError::new(message));
    }
    units::choice(text, &ALGORITHMS.map(|name| (name, name))).map(str::to_owned)
}
