//! What a process has of a batch on the server: a consumer of the tasks of its host, one of the
//! tasks that any host can do, and the news.

use std::time::Duration;

use async_nats::Subscriber;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use futures::StreamExt;
use larder_format::chain;

use super::connection::Nats;
use super::subjects::{ANY, Subjects};

/// A consumer that nobody uses goes after this. Who needs it again makes it again.
const UNUSED: Duration = Duration::from_secs(60 * 60);

/// See the module header.
pub(super) struct Place {
    own: PullConsumer,
    any: PullConsumer,
    pub(super) news: Subscriber,
}

impl Place {
    /// Joins a batch for the host with this word. A message whose receiver is silent for `ack_wait`
    /// comes again.
    pub(super) async fn join(nats: &Nats, subjects: &Subjects, host: &str, ack_wait: Duration) -> Result<Self, String> {
        nats.make_stream().await.map_err(|error| error.why())?;
        let consumer = async |of: &str| {
            let config = pull::Config {
                durable_name: Some(format!("{}-{of}", subjects.batch)),
                filter_subject: subjects.tasks_of(of),
                ack_policy: AckPolicy::Explicit,
                ack_wait,
                inactive_threshold: UNUSED,
                ..pull::Config::default()
            };
            let made = nats.jetstream.create_consumer_on_stream(config, &nats.stream).await;
            made.map_err(|error| chain(&error))
        };
        let (own, any) = (consumer(host).await?, consumer(ANY).await?);
        let news = nats.client.subscribe(subjects.news()).await.map_err(|error| chain(&error))?;
        Ok(Self { own, any, news })
    }

    /// The next message for this process, if there is one now.
    pub(super) async fn next(&self) -> Result<Option<Message>, String> {
        for consumer in [&self.own, &self.any] {
            let mut messages = consumer.fetch().max_messages(1).messages().await.map_err(|error| chain(&error))?;
            if let Some(message) = messages.next().await {
                return message.map(Some).map_err(|error| error.to_string());
            }
        }
        Ok(None)
    }
}
