//! Signatures of tokens by ring, the one crypto provider of the binary.
//!
//! `jsonwebtoken` has back ends for aws-lc-rs and RustCrypto, and panics at the first token without
//! one; this is a third.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: refuse_signing,
    verifier_factory: verifier,
    // Keys come from JWKS and are never converted to it.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes ring the provider of `jsonwebtoken`. Must be called before a token is verified.
pub(super) fn install() {
    // The second call finds the first one's.
    let _ = PROVIDER.install_default();
}

/// The gateway issues no tokens.
fn refuse_signing(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != family(*algorithm)? {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

fn family(algorithm: Algorithm) -> Result<jsonwebtoken::AlgorithmFamily, Error> {
    use jsonwebtoken::AlgorithmFamily as Family;
    match algorithm {
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => Ok(Family::Hmac),
        Algorithm::ES256 | Algorithm::ES384 => Ok(Family::Ec),
        Algorithm::RS256
        | Algorithm::RS384
        | Algorithm::RS512
        | Algorithm::PS256
        | Algorithm::PS384
        | Algorithm::PS512 => Ok(Family::Rsa),
        Algorithm::EdDSA => Ok(Family::Ed),
        _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        self.is_signed(message, signature).map_err(|_| signature::Error::new())
    }
}

impl RingVerifier {
    fn is_signed(&self, message: &[u8], signature: &[u8]) -> Result<(), ring::error::Unspecified> {
        match self.algorithm {
            Algorithm::HS256 => self.by_secret(hmac::HMAC_SHA256, message, signature),
            Algorithm::HS384 => self.by_secret(hmac::HMAC_SHA384, message, signature),
            Algorithm::HS512 => self.by_secret(hmac::HMAC_SHA512, message, signature),
            Algorithm::ES256 => self.by_curve(&ECDSA_P256_SHA256_FIXED, message, signature),
            Algorithm::ES384 => self.by_curve(&ECDSA_P384_SHA384_FIXED, message, signature),
            Algorithm::EdDSA => self.by_curve(&ED25519, message, signature),
            Algorithm::RS256 => self.by_rsa(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            Algorithm::RS384 => self.by_rsa(&RSA_PKCS1_2048_8192_SHA384, message, signature),
            Algorithm::RS512 => self.by_rsa(&RSA_PKCS1_2048_8192_SHA512, message, signature),
            Algorithm::PS256 => self.by_rsa(&RSA_PSS_2048_8192_SHA256, message, signature),
            Algorithm::PS384 => self.by_rsa(&RSA_PSS_2048_8192_SHA384, message, signature),
            Algorithm::PS512 => self.by_rsa(&RSA_PSS_2048_8192_SHA512, message, signature),
            _ => Err(ring::error::Unspecified),
        }
    }

    fn bytes(&self) -> Result<&[u8], ring::error::Unspecified> {
        self.key.try_get_as_bytes().map_err(|_| ring::error::Unspecified)
    }

    fn by_secret(
        &self,
        algorithm: hmac::Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), ring::error::Unspecified> {
        // In constant time.
        hmac::verify(&hmac::Key::new(algorithm, self.bytes()?), message, signature)
    }

    fn by_curve(
        &self,
        algorithm: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), ring::error::Unspecified> {
        UnparsedPublicKey::new(algorithm, self.bytes()?).verify(message, signature)
    }

    fn by_rsa(
        &self,
        parameters: &'static RsaParameters,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), ring::error::Unspecified> {
        let DecodingKeyKind::RsaModulusExponent { n, e } = self.key.kind() else {
            return Err(ring::error::Unspecified);
        };
        // Some issuers pad the modulus; ring accepts no padding.
        let (n, e) = (without_zeros(n), without_zeros(e));
        RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let begin = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    number.get(begin..).unwrap_or_default()
}
