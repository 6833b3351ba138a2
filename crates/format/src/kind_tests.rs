//! The kind of every error of this crate.

use larder_testkit::assert_kinds;

use crate::key_file::{MachineKeyError, PaperError, StretchError, UnwrapError, WrapError};
use crate::roles::Roles;
use crate::{DecodeError, EncodeError, ErrorKind};

#[test]
fn every_error_has_its_kind() {
    let what = "x";
    assert_kinds!(DecodeError {
        DecodeError::Truncated { .. } => DecodeError::Truncated { what }, ErrorKind::Damaged;
        DecodeError::BadMagic { .. } => DecodeError::BadMagic { what, found: [0; 4] }, ErrorKind::Damaged;
        DecodeError::UnsupportedVersion { .. } =>
            DecodeError::UnsupportedVersion { what, found: 2, newest: 1 }, ErrorKind::Precondition;
        DecodeError::Development { .. } => DecodeError::Development { what }, ErrorKind::Precondition;
        DecodeError::UnknownFeature { .. } =>
            DecodeError::UnknownFeature { feature: String::new() }, ErrorKind::Precondition;
        DecodeError::Invalid { .. } => DecodeError::Invalid { what, why: what }, ErrorKind::Damaged;
        DecodeError::Unsigned { .. } => DecodeError::Unsigned { what }, ErrorKind::Damaged;
        DecodeError::KeyLacks { .. } => DecodeError::KeyLacks { what, needs: Roles::RESTORE }, ErrorKind::BadKey;
        DecodeError::NotAuthentic { .. } => DecodeError::NotAuthentic { what }, ErrorKind::Damaged;
    });
    assert_kinds!(EncodeError { EncodeError { .. } => EncodeError { what, why: what }, ErrorKind::Bug; });
    assert_kinds!(UnwrapError {
        UnwrapError::WrongPassword => UnwrapError::WrongPassword, ErrorKind::BadKey;
        UnwrapError::Damaged(_) => UnwrapError::Damaged(DecodeError::Truncated { what }), ErrorKind::Damaged;
        UnwrapError::Stretch(_) =>
            UnwrapError::Stretch(StretchError { how: String::new() }), ErrorKind::Resource;
    });
    assert_kinds!(WrapError {
        WrapError::Encode(_) => WrapError::Encode(EncodeError { what, why: what }), ErrorKind::Bug;
        WrapError::Stretch(_) => WrapError::Stretch(StretchError { how: String::new() }), ErrorKind::Resource;
    });
    assert_kinds!(MachineKeyError {
        MachineKeyError::NoKey => MachineKeyError::NoKey, ErrorKind::BadKey;
        MachineKeyError::Line { .. } => MachineKeyError::Line { line: 1 }, ErrorKind::BadKey;
    });
    assert_kinds!(PaperError {
        PaperError::Lines { .. } => PaperError::Lines { found: 1 }, ErrorKind::BadKey;
        PaperError::Line { .. } => PaperError::Line { line: 1 }, ErrorKind::BadKey;
    });
}
