// The paths of testbed::http2, by Netty, as a program speaks to it that is made of its HTTP/2 codec: DIRECTORY PORT STREAMS WINDOW TABLE,
// the last three empty for the defaults.
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http2.AbstractHttp2ConnectionHandlerBuilder;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.Http2ConnectionDecoder;
import io.netty.handler.codec.http2.Http2ConnectionEncoder;
import io.netty.handler.codec.http2.Http2ConnectionHandler;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2EventAdapter;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2SecurityUtil;
import io.netty.handler.codec.http2.Http2Settings;
import io.netty.handler.codec.http2.Http2Stream;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslHandler;
import io.netty.handler.ssl.SslProvider;
import io.netty.handler.ssl.SupportedCipherSuiteFilter;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLParameters;

public final class Server {
    private static final int LARGE_BYTES = 300_000;
    private static final FileOutputStream LOG = new FileOutputStream(FileDescriptor.out);

    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        SslContext tls = SslContextBuilder
            .forServer(new File(directory, "certificate.pem"), new File(directory, "key.pem"))
            .sslProvider(SslProvider.JDK)
            .ciphers(Http2SecurityUtil.CIPHERS, SupportedCipherSuiteFilter.INSTANCE)
            .build();
        Http2Settings settings = new Http2Settings();
        if (!arguments[2].isEmpty()) settings.maxConcurrentStreams(Long.parseLong(arguments[2]));
        if (!arguments[3].isEmpty()) settings.initialWindowSize(Integer.parseInt(arguments[3]));
        if (!arguments[4].isEmpty()) settings.headerTableSize(Long.parseLong(arguments[4]));
        ChannelGroup connections = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE);
        Channel listener = new ServerBootstrap()
            .group(new NioEventLoopGroup(1))
            .channel(NioServerSocketChannel.class)
            .option(ChannelOption.SO_BACKLOG, 4096)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel channel) {
                    SslHandler secured = tls.newHandler(channel.alloc());
                    // Debian's Netty leaves ALPN to the JDK.
                    SSLParameters parameters = secured.engine().getSSLParameters();
                    parameters.setApplicationProtocols(new String[] {"h2"});
                    secured.engine().setSSLParameters(parameters);
                    channel.pipeline().addLast(secured);
                    // A copy for each: the builder keeps what it is given.
                    channel.pipeline().addLast(new JudgeBuilder().initialSettings(new Http2Settings().copyFrom(settings)).build());
                    connections.add(channel);
                }
            })
            .bind("127.0.0.1", Integer.parseInt(arguments[1])).sync().channel();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            listener.close().awaitUninterruptibly();
            for (Channel connection : connections) {
                connection.eventLoop().execute(connection.pipeline().get(Judge.class)::end);
            }
            connections.newCloseFuture().awaitUninterruptibly(20, TimeUnit.SECONDS);
        }));
    }

    private static void note(CharSequence path) {
        try {
            // One write, so lines are whole.
            LOG.write(("request: " + path + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static final class JudgeBuilder extends AbstractHttp2ConnectionHandlerBuilder<Judge, JudgeBuilder> {
        @Override
        public JudgeBuilder initialSettings(Http2Settings settings) {
            return super.initialSettings(settings);
        }

        @Override
        public Judge build() {
            return super.build();
        }

        @Override
        protected Judge build(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder, Http2Settings settings) {
            Judge judge = new Judge(decoder, encoder, settings);
            frameListener(judge.listener);
            return judge;
        }
    }

    /** A request, as far as it has come. */
    private static final class Request {
        final String path;
        final Http2Headers echo = new DefaultHttp2Headers();
        int length;
        int hash = 0x811c9dc5;

        Request(Http2Headers head) {
            path = head.path().toString();
            echo.status("200").set("x-path", path);
            for (String name : new String[] {"x-number", "x-token"}) {
                if (head.contains(name)) echo.set(name, head.get(name));
            }
        }

        void add(ByteBuf data) {
            length += data.readableBytes();
            data.forEachByte(value -> {
                hash = (hash ^ (value & 0xff)) * 0x01000193;
                return true;
            });
        }
    }

    /** A connection. */
    private static final class Judge extends Http2ConnectionHandler {
        private final Map<Integer, Request> requests = new HashMap<>();
        private final List<Integer> held = new ArrayList<>();
        private ChannelHandlerContext context;
        private boolean isEnding;

        final Http2EventAdapter listener = new Http2EventAdapter() {
            @Override
            public void onHeadersRead(ChannelHandlerContext context, int stream, Http2Headers head, int dependency,
                    short weight, boolean exclusive, int padding, boolean isLast) throws Http2Exception {
                onHeadersRead(context, stream, head, padding, isLast);
            }

            @Override
            public void onHeadersRead(ChannelHandlerContext context, int stream, Http2Headers head, int padding, boolean isLast) {
                Request request = new Request(head);
                note(request.path);
                if (request.path.startsWith("/early/")) {
                    write(stream, request.echo, true);
                    return;
                }
                requests.put(stream, request);
                if (isLast) onWhole(stream);
            }

            @Override
            public int onDataRead(ChannelHandlerContext context, int stream, ByteBuf data, int padding, boolean isLast) {
                Request request = requests.get(stream);
                int bytes = data.readableBytes() + padding;
                if (request != null) {
                    request.add(data);
                    if (isLast) onWhole(stream);
                }
                return bytes;
            }

            @Override
            public void onStreamClosed(Http2Stream stream) {
                requests.remove(stream.id());
            }
        };

        Judge(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder, Http2Settings settings) {
            super(decoder, encoder, settings);
            connection().addListener(listener);
        }

        @Override
        public void handlerAdded(ChannelHandlerContext context) throws Exception {
            this.context = context;
            super.handlerAdded(context);
        }

        /** Tells the client to go, and answers what is held. */
        void end() {
            isEnding = true;
            context.channel().close();
            held.forEach(this::answer);
        }

        private void onWhole(int stream) {
            Request request = requests.get(stream);
            request.echo.set("x-length", Integer.toString(request.length));
            request.echo.set("x-hash", String.format("%08x", request.hash));
            if (request.path.startsWith("/held/") && !isEnding) {
                held.add(stream);
            } else {
                answer(stream);
            }
        }

        private void answer(int stream) {
            Request request = requests.get(stream);
            if (request == null) return;
            if (request.path.startsWith("/large/")) {
                write(stream, request.echo.status("400"), false);
                byte[] body = "large ".repeat(LARGE_BYTES / 6).getBytes(StandardCharsets.UTF_8);
                encoder().writeData(context, stream, Unpooled.wrappedBuffer(body), 0, true, context.newPromise());
            } else if (request.path.startsWith("/trailers/")) {
                for (String hint : new String[] {"</style.css>; rel=preload", "</script.js>; rel=preload"}) {
                    write(stream, new DefaultHttp2Headers().status("103").set("link", hint), false);
                }
                write(stream, request.echo.status("400"), false);
                ByteBuf body = Unpooled.copiedBuffer(request.path, StandardCharsets.UTF_8);
                encoder().writeData(context, stream, body, padding(stream), false, context.newPromise());
                write(stream, new DefaultHttp2Headers().set("x-end", "yes"), true);
            } else {
                write(stream, request.echo, true);
            }
            // When it ends, Netty closes the connection with the last stream, and drops what was not flushed.
            if (isEnding) context.flush();
        }

        private void write(int stream, Http2Headers head, boolean isLast) {
            encoder().writeHeaders(context, stream, head, padding(stream), isLast, context.newPromise());
        }

        private static int padding(int stream) {
            return stream % 200;
        }
    }
}
