"""Real brokers and clients of four RocketMQ versions."""
