"""Tests of `notification-bus-nats`, against real servers."""
