//! The kind of every error of this crate.

use larder_format::ErrorKind;
use larder_index::IndexError;
use larder_rewrite::chunk_copier::RewriteError;
use larder_store::RepositoryError;
use larder_testkit::assert_kinds;

use crate::arrange::ArrangeError;
use crate::convert_layout::ConvertError;

#[test]
fn every_error_has_its_kind() {
    let index = || IndexError::Unstable { attempts: 1 };
    assert_kinds!(ArrangeError {
        ArrangeError::Index(_) => ArrangeError::Index(index()), ErrorKind::LostRace;
        ArrangeError::ChunkCopier(_) => ArrangeError::ChunkCopier(RewriteError::NoThreads), ErrorKind::Resource;
    });
    assert_kinds!(ConvertError {
        ConvertError::NoSuchSeries { .. } =>
            ConvertError::NoSuchSeries { series: String::new() }, ErrorKind::Precondition;
        ConvertError::Repository(_) => ConvertError::Repository(RepositoryError::NoKeys), ErrorKind::BadKey;
        ConvertError::ChunkCopier(_) => ConvertError::ChunkCopier(RewriteError::NoThreads), ErrorKind::Resource;
        ConvertError::Index(_) => ConvertError::Index(index()), ErrorKind::LostRace;
    });
}
