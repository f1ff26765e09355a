"""Ways to stand the system up: embedded services and real Apache Kafka without Docker."""
