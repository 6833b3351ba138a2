//! X-Wing: the key encapsulation under which data frames are sealed
//! (draft-connolly-cfrg-xwing-kem, HPKE's KEM 0x647A).
//!
//! A client that may only back up has the public half. It draws a shared secret for each data
//! container and stores the ciphertext, 1,120 bytes. Only the private half gives the secret back.
//! ML-KEM-768 and X25519 are combined, so both would have to fall.
//!
//! | value      | bytes | layout                                                              |
//! |------------|------:|---------------------------------------------------------------------|
//! | seed       |    32 | the private half; SHAKE256 expands it to d, z (ML-KEM) and an X25519 key |
//! | public     | 1,216 | ML-KEM-768 encapsulation key 1,184, X25519 public key 32            |
//! | ciphertext | 1,120 | ML-KEM-768 ciphertext 1,088, X25519 public key of the sender 32     |
//! | secret     |    32 | SHA3-256(ss_M, ss_X, ct_X, pk_X, label)                             |
//!
//! The two algorithms and SHA3 are AWS-LC's, whose ML-KEM is verified and validated.

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::digest::{Context, SHA3_256};
use aws_lc_rs::kem::{DecapsulationKey, ML_KEM_768};
use shake::digest::{ExtendableOutput, Update, XofReader};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::wire::{DecodeError, EncodeError};

/// Bytes of the public half.
pub const PUBLIC_LEN: usize = 1216;
/// Bytes of a ciphertext.
pub const CIPHERTEXT_LEN: usize = 1120;

const KEM_PUBLIC: usize = 1184;
const KEM_CIPHERTEXT: usize = 1088;
/// Bytes of an expanded ML-KEM-768 private key. The public key is inside, at [`KEM_PUBLIC_AT`].
const KEM_PRIVATE: usize = 2400;
const KEM_PUBLIC_AT: usize = 1152;
const KEM_SEED: usize = 32;
/// Random bytes of an encapsulation: ML-KEM's 32, X25519's 32.
pub const ENCAPSULATION_SEED_LEN: usize = 64;
const LABEL: &[u8; 6] = br"\.//^\";
const WHAT: &str = "wrap";

/// The public half: seals.
#[derive(Clone, PartialEq, Eq)]
pub struct OpeningPublic(Box<[u8; PUBLIC_LEN]>);

impl std::fmt::Debug for OpeningPublic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpeningPublic(..)")
    }
}

/// The private half: opens. Its 32 bytes are the seed of everything.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct OpeningSecret(pub [u8; 32]);

/// A secret that two sides share, and that nobody else can compute.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct SharedSecret(pub [u8; 32]);

/// The parts of the private half.
struct Expanded {
    kem: Zeroizing<[u8; KEM_PRIVATE]>,
    x25519: Zeroizing<[u8; 32]>,
}

impl OpeningPublic {
    /// Reads the public half.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let bytes = bytes.try_into().map_err(|_| DecodeError::invalid("opening key", "its length is wrong"))?;
        Ok(Self(Box::new(bytes)))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; PUBLIC_LEN] {
        &self.0
    }

    /// What a client remembers of it, to notice another one.
    pub fn fingerprint(&self) -> [u8; 32] {
        *blake3::hash(&self.0[..]).as_bytes()
    }

    /// Makes a secret for the owner of the private half, and the ciphertext that tells it to them.
    /// `seed` must be fresh random bytes. AWS-LC would draw them itself, but its generator spends
    /// 40 ms of CPU in every process, and equal seeds could not be tested.
    pub fn encapsulate(
        &self,
        seed: &[u8; ENCAPSULATION_SEED_LEN],
    ) -> Result<(SharedSecret, [u8; CIPHERTEXT_LEN]), EncodeError> {
        let failed = || EncodeError::new(WHAT, "the opening key of the repository is not valid");
        let (kem_public, x_public) = self.0.split_at(KEM_PUBLIC);
        let (kem_seed, x_seed) = seed.split_at(KEM_SEED);
        let mut ciphertext = [0; CIPHERTEXT_LEN];
        let (kem_ciphertext, sent) = ciphertext.split_at_mut(KEM_CIPHERTEXT);
        let kem_secret = kem_encapsulate(kem_public, kem_seed, kem_ciphertext).ok_or_else(failed)?;
        let ephemeral = PrivateKey::from_private_key(&X25519, x_seed).map_err(|_| failed())?;
        sent.copy_from_slice(ephemeral.compute_public_key().map_err(|_| failed())?.as_ref());
        let x_secret = agree(&ephemeral, x_public).ok_or_else(failed)?;
        Ok((combine(&kem_secret[..], &x_secret, sent, x_public), ciphertext))
    }
}

impl OpeningSecret {
    fn expand(&self) -> Expanded {
        let mut shake = shake::Shake256::default();
        shake.update(&self.0);
        let mut reader = shake.finalize_xof();
        let mut seed = Zeroizing::new([0; 64]);
        let mut x25519 = Zeroizing::new([0; 32]);
        reader.read(&mut seed[..]);
        reader.read(&mut x25519[..]);
        Expanded { kem: kem_private(&seed), x25519 }
    }

    /// The public half.
    pub fn public(&self) -> OpeningPublic {
        self.expand().public()
    }

    /// Gives back the secret that was drawn with a ciphertext. A ciphertext for another key gives
    /// another secret, so what was sealed does not open.
    pub fn decapsulate(&self, ciphertext: &[u8; CIPHERTEXT_LEN]) -> Result<SharedSecret, DecodeError> {
        let invalid = || DecodeError::NotAuthentic { what: WHAT };
        let expanded = self.expand();
        let (kem_ciphertext, sent) = ciphertext.split_at(KEM_CIPHERTEXT);
        let kem = DecapsulationKey::new(&ML_KEM_768, &expanded.kem[..]).map_err(|_| invalid())?;
        let kem_secret = kem.decapsulate(kem_ciphertext.into()).map_err(|_| invalid())?;
        let private = x25519_private(&expanded.x25519);
        // A point of low order gives zeros, which AWS-LC refuses.
        let x_secret = agree(&private, sent).ok_or_else(invalid)?;
        let x_public = private.compute_public_key().expect("a private key has a public one");
        Ok(combine(kem_secret.as_ref(), &x_secret, sent, x_public.as_ref()))
    }
}

impl Expanded {
    fn public(&self) -> OpeningPublic {
        let mut public = Box::new([0; PUBLIC_LEN]);
        public[..KEM_PUBLIC].copy_from_slice(&self.kem[KEM_PUBLIC_AT..KEM_PUBLIC_AT + KEM_PUBLIC]);
        let x_public = x25519_private(&self.x25519).compute_public_key().expect("a private key has a public one");
        public[KEM_PUBLIC..].copy_from_slice(x_public.as_ref());
        OpeningPublic(public)
    }
}

fn x25519_private(bytes: &[u8; 32]) -> PrivateKey {
    PrivateKey::from_private_key(&X25519, bytes).expect("any 32 bytes are an X25519 key")
}

fn agree(private: &PrivateKey, peer: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    agreement::agree(private, UnparsedPublicKey::new(&X25519, peer), (), |secret| {
        let mut shared = Zeroizing::new([0; 32]);
        shared.copy_from_slice(secret);
        Ok(shared)
    })
    .ok()
}

fn combine(kem: &[u8], x25519: &[u8; 32], sent: &[u8], x_public: &[u8]) -> SharedSecret {
    let mut hash = Context::new(&SHA3_256);
    for part in [kem, x25519, sent, x_public, LABEL] {
        hash.update(part);
    }
    let mut secret = SharedSecret([0; 32]);
    secret.0.copy_from_slice(hash.finish().as_ref());
    secret
}

/// ML-KEM-768's encapsulation with these 32 bytes: FIPS 203, algorithm 17. Writes the ciphertext;
/// `None` if the public key is not valid.
#[expect(unsafe_code, reason = "the safe interface of AWS-LC draws the bytes itself")]
fn kem_encapsulate(public: &[u8], seed: &[u8], ciphertext: &mut [u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut secret = Zeroizing::new([0; 32]);
    let (mut ciphertext_len, mut secret_len, mut seed_len) = (ciphertext.len(), secret.len(), seed.len());
    // SAFETY: every pointer comes with the length of its slice, and the slices outlive the calls.
    // Key and context are checked for null before they are used, and freed once.
    let is_done = unsafe {
        let key = aws_lc_sys::EVP_PKEY_kem_new_raw_public_key(aws_lc_sys::NID_MLKEM768, public.as_ptr(), public.len());
        let context = match key.is_null() {
            true => std::ptr::null_mut(),
            false => aws_lc_sys::EVP_PKEY_CTX_new(key, std::ptr::null_mut()),
        };
        let is_done = !context.is_null()
            && aws_lc_sys::EVP_PKEY_encapsulate_deterministic(
                context,
                ciphertext.as_mut_ptr(),
                &mut ciphertext_len,
                secret.as_mut_ptr(),
                &mut secret_len,
                seed.as_ptr(),
                &mut seed_len,
            ) == 1;
        aws_lc_sys::EVP_PKEY_CTX_free(context);
        aws_lc_sys::EVP_PKEY_free(key);
        is_done
    };
    let is_whole = (ciphertext_len, secret_len, seed_len) == (KEM_CIPHERTEXT, 32, KEM_SEED);
    (is_done && is_whole).then_some(secret)
}

/// ML-KEM-768's private key from its seed, d and z: FIPS 203, algorithm 16. `aws-lc-rs` makes keys
/// at random only, but the paper key must give back the same one.
#[expect(unsafe_code, reason = "the safe interface of AWS-LC lacks it")]
fn kem_private(seed: &[u8; 64]) -> Zeroizing<[u8; KEM_PRIVATE]> {
    /// PKCS#8 of a seed (RFC 9935): version, id-alg-ml-kem-768, and the seed's tag.
    const PKCS8: [u8; 22] = [
        0x30, 0x54, 0x02, 0x01, 0x00, 0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x04, 0x02,
        0x04, 0x42, 0x80, 0x40,
    ];
    let mut encoded = Zeroizing::new([0; PKCS8.len() + 64]);
    encoded[..PKCS8.len()].copy_from_slice(&PKCS8);
    encoded[PKCS8.len()..].copy_from_slice(seed);
    let mut private = Zeroizing::new([0; KEM_PRIVATE]);
    let mut len = KEM_PRIVATE;
    // SAFETY: `cbs` borrows `encoded`, which lives to the end; the key is checked for null before
    // it is used, and freed once. The raw key is written into `private`, whose length is `len`.
    let is_written = unsafe {
        let mut cbs = std::mem::zeroed();
        aws_lc_sys::CBS_init(&mut cbs, encoded.as_ptr(), encoded.len());
        let key = aws_lc_sys::EVP_parse_private_key(&mut cbs);
        let is_written =
            !key.is_null() && aws_lc_sys::EVP_PKEY_get_raw_private_key(key, private.as_mut_ptr(), &mut len) == 1;
        aws_lc_sys::EVP_PKEY_free(key);
        is_written
    };
    assert!(is_written && len == KEM_PRIVATE, "AWS-LC makes ML-KEM keys from seeds");
    private
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_share_a_secret_and_others_do_not() {
        let secret = OpeningSecret([7; 32]);
        let (drawn, ciphertext) = secret.public().encapsulate(&[1; 64]).expect("a valid key");
        assert_eq!(secret.decapsulate(&ciphertext).expect("its own").0, drawn.0);
        let (again, other) = secret.public().encapsulate(&[2; 64]).expect("a valid key");
        assert_ne!((drawn.0, ciphertext), (again.0, other), "another seed");
        let foreign = OpeningSecret([8; 32]).decapsulate(&ciphertext).map(|secret| secret.0);
        assert_ne!(foreign.ok(), Some(drawn.0));
        for place in [0, KEM_CIPHERTEXT - 1, KEM_CIPHERTEXT, CIPHERTEXT_LEN - 2] {
            let mut damaged = ciphertext;
            damaged[place] ^= 1;
            assert_ne!(secret.decapsulate(&damaged).map(|secret| secret.0).ok(), Some(drawn.0), "{place}");
        }
    }

    #[test]
    fn a_point_of_low_order_is_refused() {
        let secret = OpeningSecret([7; 32]);
        let (_, mut ciphertext) = secret.public().encapsulate(&[1; 64]).expect("a valid key");
        ciphertext[KEM_CIPHERTEXT..].fill(0);
        assert!(secret.decapsulate(&ciphertext).is_err());
        let mut public = secret.public();
        public.0[KEM_PUBLIC..].fill(0);
        assert!(public.encapsulate(&[1; 64]).is_err());
    }

    /// The draft's vectors, four lines each: seed, public half, ciphertext, secret. The draft draws
    /// the seeds of keys and of encapsulations from SHAKE128 of nothing.
    #[test]
    fn the_vectors_of_the_draft_hold() {
        let lines: Vec<_> =
            include_str!("golden/x_wing.hex").lines().map(|line| hex::decode(line).expect("hex")).collect();
        assert_eq!(lines.len(), 12);
        let mut drawn = shake::Shake128::default().finalize_xof();
        for vector in lines.chunks(4) {
            let secret = OpeningSecret(vector[0].clone().try_into().expect("32 bytes"));
            assert_eq!(secret.public().as_bytes()[..], vector[1]);
            let ciphertext = vector[2].clone().try_into().expect("1,120 bytes");
            assert_eq!(secret.decapsulate(&ciphertext).expect("valid").0[..], vector[3]);
            let (mut of_key, mut of_encapsulation) = ([0; 32], [0; 64]);
            drawn.read(&mut of_key);
            drawn.read(&mut of_encapsulation);
            assert_eq!(of_key, secret.0);
            let (shared, made) = secret.public().encapsulate(&of_encapsulation).expect("a valid key");
            assert_eq!((shared.0.to_vec(), made), (vector[3].clone(), ciphertext));
        }
    }

    /// Another implementation opens what this one seals, and the other way round.
    #[test]
    fn another_implementation_agrees() {
        use x_wing::{Decapsulate, Decapsulator, Encapsulate, KeyExport};
        let ours = OpeningSecret([9; 32]);
        let theirs = x_wing::DecapsulationKey::from([9; 32]);
        let their_public = theirs.encapsulation_key().clone();
        assert_eq!(their_public.to_bytes()[..], ours.public().as_bytes()[..]);
        let (secret, ciphertext) = ours.public().encapsulate(&[3; 64]).expect("a valid key");
        assert_eq!(theirs.decapsulate(&ciphertext.into())[..], secret.0[..]);
        let (ciphertext, secret) = their_public.encapsulate();
        assert_eq!(ours.decapsulate(&ciphertext.into()).expect("valid").0[..], secret[..]);
    }
}
