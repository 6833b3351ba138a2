//! The images of an inventory, as `larder backup --image` opens them.

use std::ffi::OsString;
use std::sync::Arc;

use larder_fleet::inventory::Listed;
use larder_fleet::{OpenedImage, Sources};
use larder_format::ids::JobId;
use larder_source::image::{LimitedImage, ReadLimit, Stops};
use larder_store::Repository;

use crate::app::App;
use crate::args::{FleetReadingArgs, ImageArgs};
use crate::commands::backup::image::{self, Opened, Wanted};
use crate::commands::read_limit::read_limit;
use crate::failure::Failure;
use crate::output::safe;
use crate::refs::clean_path;

/// See the module header.
pub(super) struct Images<'a> {
    app: &'a App,
    listed: &'a [Listed],
    wanted: Vec<(ImageArgs, Wanted)>,
    /// Of all images together.
    limit: Option<Arc<ReadLimit>>,
}

impl<'a> Images<'a> {
    /// Takes the sources apart, and opens none.
    pub(super) fn of(
        app: &'a App,
        reading: &FleetReadingArgs,
        verify_every: u32,
        listed: &'a [Listed],
    ) -> Result<Self, Failure> {
        let wanted = listed.iter().map(|listed| {
            let args = ImageArgs {
                image: Some(OsString::from(&listed.source)),
                changed_map: listed.map.clone(),
                changed_context: listed.context.clone(),
                changed_since: listed.since.clone().map(OsString::from),
                image_scratch: reading.image_scratch.clone(),
                verify_every: Some(verify_every),
                limit_read: None,
            };
            let of_image = |failure: Failure| failure.while_doing(&format!("image {}", safe(&listed.name)));
            let wanted = Wanted::of(&args).map_err(of_image)?;
            let wanted = wanted.ok_or_else(|| Failure::usage("an image needs a source"))?;
            Ok::<_, Failure>((args, wanted))
        });
        let wanted = wanted.collect::<Result<_, _>>()?;
        Ok(Self { app, listed, wanted, limit: read_limit(app, reading.limit_read) })
    }

    /// Opens them when a batch asks for them.
    pub(super) fn open_in<'s>(&'s mut self, repository: &'s Repository) -> Opening<'s, 'a> {
        Opening { images: self, repository, stops: None }
    }
}

/// Opens images.
pub(super) struct Opening<'s, 'a> {
    images: &'s mut Images<'a>,
    repository: &'s Repository,
    /// Ends waits for images when the batch is interrupted.
    stops: Option<Stops>,
}

impl Sources for Opening<'_, '_> {
    fn open(&mut self, number: usize, job: JobId) -> Result<OpenedImage, String> {
        let (app, series) = (self.images.app, &self.images.listed[number].series);
        let (args, wanted) = &self.images.wanted[number];
        let stops = self.stops.get_or_insert_with(|| image::stops(app));
        let line = |failure: Failure| match failure.advice {
            Some(advice) => format!("{}; {advice}", failure.message),
            None => failure.message,
        };
        let (shown, _) = wanted.names().map_err(line)?;
        let path = clean_path(&shown).map_err(line)?;
        let opened = image::open(app, self.repository, args, false, wanted, series, job, stops).map_err(line)?;
        let Opened { image, extents, changes, no_map, ending } = opened;
        let image = LimitedImage::of(image, self.images.limit.as_ref());
        Ok(OpenedImage { image, path, shown, extents, changes, no_map, ending })
    }

    fn remark(&mut self, number: usize, remark: &str) {
        self.images.app.out.warn(&format!("image {}: {remark}", safe(&self.images.listed[number].name)));
    }
}
